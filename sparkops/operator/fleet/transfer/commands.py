"""Both ends of a transfer between nodes: commands and their output. templates/node/transfer.py is their program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sparkops.command import Command
from sparkops.config import programs
from sparkops.node.program import parsed, python

DAY_S = 24 * 3600.0
BROKEN, UNREACHABLE = 3, 69
"""Exit codes of either end: connection to the other end lost; no connection between the ends."""
Place = tuple[str, int]
"""Address and TCP port where a receiving end listens."""


@dataclass(frozen=True)
class SentFiles:
    """Files to send from a directory: (name, size in bytes, offset to start at)."""

    directory: str
    files: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Into:
    """Files to receive into `directory`: (name, size in bytes, offset, time of change in ns), in the order of sending.

    `keep` are files of the directory `beside` that are linked into it. A partial directory with another `identity` is
    emptied first.
    """

    directory: str
    identity: str
    files: tuple[tuple[str, int, int, int], ...]
    beside: str = ""
    keep: tuple[str, ...] = ()


@dataclass(frozen=True)
class EndProgram:
    """A program at either end: its output is sent, or its input is received. `called`: its name in errors."""

    argv: tuple[str, ...]
    called: str = "a program"


@dataclass(frozen=True)
class Key:
    """The secret of both ends of one transfer: 32 random bytes, never used twice, never printed."""

    value: bytes = field(repr=False)


def receive(key: Key, take: Into | EndProgram, listen: Sequence[str] | None) -> Command:
    """Run the receiving end: it listens on those of the addresses that are its node's, or reads stdin for None."""
    return _program("receive", key, take, changes=True, listen=listen)


def send(
    key: Key, give: SentFiles | EndProgram, to: Sequence[Place] | None, also: Sequence[tuple[Key, Sequence[Place]]] = ()
) -> Command:
    """Run the sending end: it connects to the first place that answers, or writes to stdout for None.

    `also` are further receiving ends of the same content, which is read once for all of them.
    """
    return _program("send", key, give, to=to, also=[(other.value.hex(), places) for other, places in also])


def _program(
    role: str, key: Key, content: SentFiles | Into | EndProgram, *, changes: bool = False, **request: Any
) -> Command:
    modules = programs.load(*programs.TRANSFER)
    return python(
        modules,
        {"role": role, "token": key.value.hex(), **request, **asdict(content)},
        timeout_s=DAY_S,
        changes=changes,
    )


@dataclass(frozen=True)
class Listening:
    """The places where a receiving end listens."""

    places: tuple[Place, ...]


@dataclass(frozen=True)
class Arrived:
    """Bytes of content so far. `all`: no more follow."""

    count: int
    all: bool = False


@dataclass(frozen=True)
class Unreachable:
    """Receiving ends that the sending end cannot connect to, by their numbers."""

    numbers: tuple[int, ...]


def parse(line: str) -> Listening | Arrived | Unreachable | None:
    """Parse a line of templates/node/transfer.py; None for other text."""
    match parsed(line):
        case {"at": list(places)}:
            return Listening(tuple((host, port) for host, port in places))
        case {"bytes": int(count), **more}:
            return Arrived(count, all=bool(more.get("all")))
        case {"apart": list(numbers)}:
            return Unreachable(tuple(numbers))
        case _:
            return None
