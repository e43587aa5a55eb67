"""What the receiving end of a transfer tells: where it listens, and what has arrived."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Listening:
    """Address and TCP port of every place where it listens."""

    places: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Arrived:
    """Bytes of content so far."""

    count: int


def parse(line: str) -> Listening | Arrived | None:
    """One line of templates/node/transfer.py; None for anything else."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    match said:
        case {"at": list(places)}:
            return Listening(tuple((host, port) for host, port in places))
        case {"bytes": int(count)}:
            return Arrived(count)
        case _:
            return None
