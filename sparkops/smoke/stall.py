"""The pulse of an engine whose answer is waited for: one that is busy takes steps, one that hangs takes none.

Where the network between two ranks is cut, nothing breaks off: /health says 200, and every request waits for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from requests import Session

from sparkops.engine import endpoints, metrics

LOOK_S = 1.0


@dataclass
class Pulse:
    """Looks at what an engine counts. `open` gives sessions that know the way to it; `stall_s` is in seconds."""

    open: Callable[[], Session]
    stall_s: float
    look_s: float = LOOK_S
    seen: tuple[float, ...] = ()
    since_s: float = field(default_factory=time.monotonic)
    looked_s: float = -inf

    def stopped(self) -> str:
        """What is wrong where no step was seen for too long; else empty. Looks every second, not at every call.

        An engine that does not say what it counts is never said to hang; one that says nothing at all is.
        """
        if (now := time.monotonic()) - self.looked_s >= self.look_s:
            self._look(now)
            self.looked_s = time.monotonic()
        return f"the engine made no step for {self.stall_s:g} s" if now - self.since_s > self.stall_s else ""

    def _look(self, now: float) -> None:
        with self.open() as session:
            page = endpoints.metrics_page(session)
        if page is None:
            return
        steps = metrics.steps(page)
        if not steps or steps != self.seen:
            self.seen, self.since_s = steps, now
