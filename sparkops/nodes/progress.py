"""What long work tells while it goes on: values, so that a terminal, a log and a test each show them their way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """`text` is what `node` is doing now. `done` of `total` steps have ended, where that is known.

    `lasting` marks what a reader of a plain log wants to keep; the others only move a live display.
    """

    node: str
    text: str
    done: int = 0
    total: int = 0
    lasting: bool = True


Tell = Callable[[Event], None]


def silent(_: Event) -> None:
    """Ignore the event."""
