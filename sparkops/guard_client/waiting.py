"""Repeat what is refused while another change or work is in progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from sparkops.errors import Busy
from sparkops.guard_client.repeats import Repeats
from sparkops.nodes.progress import Event, Tell
from sparkops.nodes.waiting import Waiting

POLL_S = 2.0
R = TypeVar("R")


def until_free(attempt: Callable[[], R], wait_s: float, node: str, tell: Tell, cancel: threading.Event) -> R:
    """Try until it is not refused with exit code 4, for `wait_s`. Raises Busy after that, or Interrupted."""
    repeats = Repeats()

    def report(busy: Busy) -> None:
        tell(Event(node, f"waiting: {busy}", lasting=repeats.keeps(str(busy), time.monotonic())))

    return Waiting(POLL_S, wait_s, cancel).retry(attempt, lambda error: isinstance(error, Busy), report)
