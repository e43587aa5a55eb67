"""What the ends of a transfer tell: where one listens, what has arrived, and who cannot be met."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Listening:
    """Address and TCP port of every place where it listens."""

    places: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Arrived:
    """Bytes of content so far. `all`: there is no more to come."""

    count: int
    all: bool = False


@dataclass(frozen=True)
class Apart:
    """Which of several receiving ends cannot be met, by their numbers."""

    numbers: tuple[int, ...]


def parse(line: str) -> Listening | Arrived | Apart | None:
    """One line of templates/node/transfer.py; None for anything else."""
    try:
        message = json.loads(line)
    except ValueError:
        return None
    match message:
        case {"at": list(places)}:
            return Listening(tuple((host, port) for host, port in places))
        case {"bytes": int(count), **more}:
            return Arrived(count, all=bool(more.get("all")))
        case {"apart": list(numbers)}:
            return Apart(tuple(numbers))
        case _:
            return None
