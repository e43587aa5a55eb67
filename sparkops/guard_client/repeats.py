"""Which reports of a wait a plain log keeps. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

REPEAT_S = 60.0  # a plain log shows that the wait continues, without a line per poll


@dataclass
class Repeats:
    """Selects the reports that a plain log keeps: the first, each change, and one every REPEAT_S seconds."""

    key: object = None
    kept_s: float = -inf

    def keeps(self, key: object, now_s: float) -> bool:
        """Return whether a report is kept at `now_s`, and remember it."""
        kept = key != self.key or now_s - self.kept_s >= REPEAT_S
        if kept:
            self.key, self.kept_s = key, now_s
        return kept
