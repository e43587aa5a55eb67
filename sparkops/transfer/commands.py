"""Both ends of a transfer between two nodes, as commands. templates/node/transfer.py says what it protects against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkops.command import Command
from sparkops.nodes.program import python

DAY_S = 24 * 3600.0
BROKEN, APART = 3, 69
"""Exit codes of either end: the other one is gone; the two cannot meet."""
Modules = Mapping[str, str]
Place = tuple[str, int]
"""Address and TCP port where a receiving end listens."""


@dataclass(frozen=True)
class SentFiles:
    """Send files of a directory: (name, size in bytes, offset to begin at)."""

    directory: str
    files: tuple[tuple[str, int, int], ...]

    def asked(self) -> dict[str, Any]:
        """What the program is asked for."""
        return {"directory": self.directory, "files": self.files}


@dataclass(frozen=True)
class Into:
    """Receive files into `directory`: (name, size in bytes, offset, time of change in ns), in the order they are sent.

    `keep` are files of the directory `beside` that are linked into it. What was begun there with another `identity`
    is thrown away first.
    """

    directory: str
    identity: str
    files: tuple[tuple[str, int, int, int], ...]
    beside: str = ""
    keep: tuple[str, ...] = ()

    def asked(self) -> dict[str, Any]:
        """What the program is asked for."""
        return {
            "directory": self.directory,
            "identity": self.identity,
            "files": self.files,
            "beside": self.beside,
            "keep": self.keep,
        }


@dataclass(frozen=True)
class EndProgram:
    """A program at either end: what it prints is sent, or what arrives is its input. `called`: its name in errors."""

    argv: tuple[str, ...]
    called: str = ""

    def asked(self) -> dict[str, Any]:
        """What the program is asked for."""
        return {"argv": self.argv, "called": self.called or " ".join(self.argv)}


@dataclass(frozen=True)
class Key:
    """What both ends of one transfer hold: 32 random bytes. Never used twice, never printed."""

    value: bytes = field(repr=False)


def receive(modules: Modules, key: Key, take: Into | EndProgram, listen: Sequence[str] | None) -> Command:
    """The receiving end: it listens on those of the addresses that are its node's, or reads stdin for None."""
    request = {"role": "receive", "token": key.value.hex(), "listen": listen, **take.asked()}
    return python(modules, request, timeout_s=DAY_S, changes=True)


def send(
    modules: Modules,
    key: Key,
    give: SentFiles | EndProgram,
    to: Sequence[Place] | None,
    also: Sequence[tuple[Key, Sequence[Place]]] = (),
) -> Command:
    """The sending end: it connects to the first place that answers, or writes to stdout for None.

    `also` are other receiving ends of the same, which is read once for all of them.
    """
    others = [(theirs.value.hex(), places) for theirs, places in also]
    request = {"role": "send", "token": key.value.hex(), "to": to, "also": others, **give.asked()}
    return python(modules, request, timeout_s=DAY_S)
