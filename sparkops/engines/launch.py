"""What the container of one rank starts: values that sparkops gives to an engine, and that it returns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Seat:
    """The place of a rank in its replica's network: its own address, and that of rank 0."""

    address: str
    head: str
    env: Mapping[str, str] = field(default_factory=dict)
    """Settings for the network of its own node."""
    options: tuple[str, ...] = ()
    """Options of `docker create` for the network's devices."""
    own: tuple[str, ...] = ()
    """Names in `env` whose values are this node's alone."""
    peers: tuple[str, ...] = ()
    """Addresses of all ranks, which alone may connect to this one."""


@dataclass(frozen=True)
class RankProgram:
    """The program of a container, and its environment and options."""

    entrypoint: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankPlace:
    """The place of one rank among several: `tensor` ranks share each of `pipeline` stages of layers."""

    index: int
    """The ranks of one stage follow each other, as both engines number them."""
    tensor: int
    pipeline: int
    port: int
    """Port of rank 0 at which the ranks meet."""
    seat: Seat

    @property
    def size(self) -> int:
        """Ranks of the replica, one a node."""
        return self.tensor * self.pipeline


@dataclass(frozen=True)
class FlagForm:
    """How an engine reads the arguments of a recipe."""

    off: str
    """Form of a flag that is false."""
    json_lists: frozenset[str] = frozenset()
    """Flags that take a list as JSON; so does each key behind a dot. Every other list is several words."""
    repeated: frozenset[str] = frozenset()
    """Flags that are written once for each item."""
    pair: str = "--{flag}={value}"
    """Form of a flag with a value; words are separated at its spaces."""

    def words(self, args: Mapping[str, Any]) -> Iterator[str]:
        """Yield the arguments of the recipe's mapping, in their order."""
        for flag, value in args.items():
            match value:
                case True:
                    yield f"--{flag}"
                case False:
                    yield self.off.format(flag=flag)
                case dict():
                    yield from self._pair(flag, json.dumps(value))
                case list() if "." in flag or flag in self.json_lists:
                    yield from self._pair(flag, json.dumps(value))
                case list() if flag in self.repeated:
                    for item in value:
                        yield from self._pair(flag, _text(item))
                case list():
                    yield from (f"--{flag}", *(_text(item) for item in value))
                case _:
                    yield from self._pair(flag, value)

    def _pair(self, flag: str, value: object) -> Iterator[str]:
        yield from (word.format(flag=flag, value=value) for word in self.pair.split())


def _text(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)
