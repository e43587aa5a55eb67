"""The challenges that a guard has given out: one for each link, valid once, kept in memory only."""

from __future__ import annotations

import hmac
import secrets
import threading

LINKS = 64  # the oldest challenge gives way; its link gets a new one and sends again


class Challenges:
    """One challenge for each link of a leader. Thread-safe."""

    def __init__(self) -> None:
        self._by_link: dict[str, str] = {}
        self._lock = threading.Lock()

    def use(self, link: str, answer: str) -> bool:
        """Return whether this answers the last challenge of the link, which then is no longer valid."""
        with self._lock:
            valid = link in self._by_link and hmac.compare_digest(self._by_link[link].encode(), answer.encode())
            if valid:
                del self._by_link[link]
            return valid

    def current(self, link: str) -> str:
        """Return the challenge of a link that waits for its answer; a new one if none does."""
        with self._lock:
            challenge = self._by_link.setdefault(link, secrets.token_hex(16))
            if len(self._by_link) > LINKS:
                del self._by_link[next(iter(self._by_link))]
            return challenge
