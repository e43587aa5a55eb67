"""The newest picture of a fleet, read while a page asks for it: nobody looks, no node is read."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

PAUSE_S = 2.0
"""Seconds between two readings, as of `status --watch`."""
IDLE_S = 10.0
"""Seconds after the last request for which nodes are still read, and most age of a picture that is sent at once."""
WAIT_S = 20.0
"""Longest wait of a request for a newer picture."""


@dataclass(frozen=True)
class Picture:
    """A picture as JSON. `tag`: its ETag; `read_s`: when it was read, in monotonic seconds."""

    body: bytes
    tag: str
    read_s: float

    @classmethod
    def of(cls, value: object, read_s: float) -> Picture:
        """Return the picture of a value of JSON."""
        body = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace")
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"', read_s)


@dataclass
class Feed:
    """Reads in the thread of `run`, and answers requests in others. `read` returns a value of JSON."""

    read: Callable[[], object]
    clock: Callable[[], float] = time.monotonic
    pause_s: float = PAUSE_S
    wait_s: float = WAIT_S
    _newest: Picture | None = None
    _asked_s: float = -inf
    _over: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        """Read until `close`, with a pause after each reading, while requests come. Raises what `read` raises."""
        while self.waits():
            value = self.read()
            with self._changed:
                self._newest = Picture.of(value, self.clock())
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._over, self.pause_s)

    def waits(self) -> bool:
        """Wait until a page asks, or has asked within IDLE_S. Returns False once the feed is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self.clock() - self._asked_s <= IDLE_S)
            return not self._over

    def newest(self, known: str = "") -> Picture | None:
        """Return a picture of at most IDLE_S seconds with another tag than `known`; None if none comes in time."""
        with self._changed:
            self._asked_s = self.clock()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._over or self._fresh(known), self.wait_s)
            self._asked_s = self.clock()
            return self._newest if self._fresh(known) else None

    def _fresh(self, known: str) -> bool:
        newest = self._newest
        return newest is not None and newest.tag != known and self.clock() - newest.read_s <= IDLE_S

    def close(self) -> None:
        """End `run` and every wait."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
