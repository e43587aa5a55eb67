"""The cordon of this guard's node: read at every report, changed by operators, on disk before it counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from sparkops.errors import Busy
from sparkops.guard.durable import Unreadable
from sparkops.guard.state import State
from sparkops.guard_client.cordon import Cordon


@dataclass
class NodeCordon:
    """The cordon of one node. Thread-safe."""

    state: State
    _read: Cordon | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def text(self) -> str:
        """What a new release must wait for; empty for nothing. A cordon that cannot be read counts as one."""
        try:
            return self.read().text
        except (Unreadable, OSError) as error:
            return f"cordon, which cannot be read: {error}"

    def read(self) -> Cordon:
        """Return the cordon. Raises Unreadable, OSError."""
        with self._lock:
            return self._known()

    def replace(self, was: Cordon, to: Cordon) -> None:
        """Replace the cordon `was`; the new one is on the disk on return.

        Raises Busy where another client has changed it meanwhile, Unreadable, OSError.
        """
        with self._lock:
            if self._known() == to:  # the reply to the first request was lost
                return
            if self._known() != was:
                raise Busy("the cordon was changed by another client", next_step="Check `sparkops status`, then retry.")
            self.state.write_cordon(to)
            self._read = to

    def _known(self) -> Cordon:
        if self._read is None:
            self._read = self.state.cordon()
        return self._read
