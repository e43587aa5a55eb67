"""Progress of long work as values, for a terminal, a log or a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from sparkops.units import GIB, MIB

PARTS = 10
REPEAT_S = 60.0  # a plain log shows that the wait continues, without a line per poll


@dataclass(frozen=True)
class Event:
    """Progress on `node`, or of a service; `completed` of `total` steps, if known.

    Only `lasting` events belong in a plain log. One without text ends what is shown of the node.
    """

    node: str
    text: str
    completed: int = 0
    total: int = 0
    lasting: bool = True


OnEvent = Callable[[Event], None]


def silent(_: Event) -> None:
    """Ignore the event."""


@dataclass
class Repeats:
    """Selection of the reports that a plain log keeps: the first, each change, and one every REPEAT_S seconds."""

    key: object = None
    kept_s: float = -inf

    def keeps(self, key: object, now_s: float) -> bool:
        """Return whether a report is kept at `now_s`, and remember it."""
        kept = key != self.key or now_s - self.kept_s >= REPEAT_S
        if kept:
            self.key, self.kept_s = key, now_s
        return kept


@dataclass(frozen=True)
class ByteCount:
    """Bytes so far, of all."""

    count: int
    total: int


@dataclass
class Meter:
    """Meter of the bytes of `total` on `node`, from `at` on: a terminal gets all counts, a log every tenth part."""

    report: OnEvent
    node: str
    what: str
    total: int
    at: int = 0
    now: Callable[[], float] = time.monotonic
    start_s: float = field(init=False)
    part: int = field(init=False)

    def __post_init__(self) -> None:
        self.start_s, self.part = self.now(), self._part(self.at)

    def __call__(self, count: int) -> None:
        """Report the bytes so far, those of an earlier try included."""
        part = self._part(count)
        text = amount(count, self.total, count - self.at, self.now() - self.start_s)
        self.report(Event(self.node, f"{self.what}: {text}", lasting=part > self.part))
        self.part = max(part, self.part)

    def _part(self, count: int) -> int:
        return count * PARTS // self.total if self.total else PARTS


def amount(count: int, total: int, new: int, took_s: float) -> str:
    """Return progress as text: bytes in MiB or GiB, and the rate of the `new` ones."""
    unit, name = (GIB, "GiB") if total >= GIB else (MIB, "MiB")
    rate = f", {new / took_s / MIB:.0f} MiB/s" if took_s > 0 and new else ""
    return f"{count / unit:.1f} of {total / unit:.1f} {name}{rate}"
