"""Leases that operators' machines hold of a guard, each named after who does what. A lease ends with its connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Leases:
    """The leases of one kind. Thread-safe."""

    superseded: str = ""
    """What engines wait for where another guard may lead by now (`Leadership.awaited`); empty for nothing."""
    _holders: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def text(self) -> str:
        """The holders, such as `build of image X by user@host`; empty without a lease."""
        with self._lock:
            return "; ".join(dict.fromkeys(self._holders))

    def add(self, holder: str) -> None:
        """Add a lease beside others."""
        with self._lock:
            self._holders.append(holder)

    def remove(self, holder: str) -> None:
        """Remove a lease of this holder."""
        with self._lock:
            self._holders.remove(holder)

    def add_alone(self, holder: str) -> str:
        """Add a lease unless there is one. Returns the holder of that one; empty where it was added."""
        with self._lock:
            if not self._holders:
                self._holders.append(holder)
                return ""
            return self._holders[0]

    @contextmanager
    def until_end(self, holder: str) -> Iterator[None]:
        """Remove the lease of `holder` at the end of the context."""
        try:
            yield
        finally:
            self.remove(holder)
