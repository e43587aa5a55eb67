"""Retry requests that are refused during another change, and select the reports that a plain log keeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from sparkops.errors import Busy
from sparkops.nodes.progress import Event, OnEvent
from sparkops.nodes.waiting import Waiting

REPEAT_S = 60.0  # a plain log shows that the wait continues, without a line per poll


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


POLL_S = 2.0
R = TypeVar("R")


def until_free(attempt: Callable[[], R], wait_s: float, node: str, report: OnEvent, cancel: threading.Event) -> R:
    """Retry an attempt that is refused with exit code 4, for `wait_s`. Raises Busy after that, or Interrupted."""
    repeats = Repeats()

    def report_busy(busy: Busy) -> None:
        report(Event(node, f"waiting: {busy}", lasting=repeats.keeps(str(busy), time.monotonic())))

    return Waiting(POLL_S, wait_s, cancel).retry(attempt, lambda error: isinstance(error, Busy), report_busy)
