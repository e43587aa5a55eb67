"""Bytes that go by, told as they go: every one of them on a terminal, every tenth part in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkops.nodes.progress import Event, Tell
from sparkops.weights.plan import amount

PARTS = 10


@dataclass
class Meter:
    """Tells how many of `total` bytes have gone by on `node`. `at` is how many were there when it began."""

    tell: Tell
    node: str
    what: str
    total: int
    at: int = 0
    now: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    part: int = field(init=False)

    def __post_init__(self) -> None:
        self.began, self.part = self.now(), self._part(self.at)

    def __call__(self, done: int) -> None:
        """Report the bytes so far, those of an earlier try included."""
        part = self._part(done)
        text = amount(done, self.total, done - self.at, self.now() - self.began)
        self.tell(Event(self.node, f"{self.what}: {text}", lasting=part > self.part))
        self.part = max(part, self.part)

    def _part(self, done: int) -> int:
        return done * PARTS // self.total if self.total else PARTS
