"""Whether and when a notice is sent again, from the answer of the receiver. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Seconds before the second attempt, doubled at each further one up to the longest: an event that is told five minutes
after the receiver is back is still early, and a dead receiver costs a guard one connection in that time."""
REFUSED_S = 6 * 3600.0
"""Seconds for which a refused notice is sent again. A wrong path or key is corrected within a working day's half; one
notice that a receiver can never read must not keep all later ones from it."""
LATER = frozenset({408, 425, 429})
"""Statuses of the 4xx that ask for another attempt (RFC 9110, 8470, 6585)."""


class Outcome(Enum):
    """The result of one attempt."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """No answer, or one that another attempt may change: it is repeated for as long as the notice is kept."""
    REFUSED = "refused"
    """An answer that says that the request is wrong: it is repeated for REFUSED_S."""


def outcome(status: int) -> Outcome:
    """Return what a status of HTTP says. A redirect is refused: only the inventory says where notices go."""
    if 200 <= status < 300:
        return Outcome.DELIVERED
    return Outcome.REFUSED if 300 <= status < 500 and status not in LATER else Outcome.FAILED


@dataclass(frozen=True)
class Attempts:
    """The attempts to send one notice. Times in seconds that only grow."""

    number: int = 0
    refused_s: float | None = None
    """When it was refused first."""

    def after(self, result: Outcome, at_s: float) -> Attempts:
        """Return the attempts with one more that was not delivered."""
        refused_s = at_s if result is Outcome.REFUSED and self.refused_s is None else self.refused_s
        return replace(self, number=self.number + 1, refused_s=refused_s)

    @property
    def pause_s(self) -> float:
        """Return the seconds before the next attempt."""
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.number - 1, 20)) if self.number else 0.0

    def given_up(self, at_s: float) -> bool:
        """Return whether the notice is not sent again."""
        return self.refused_s is not None and at_s - self.refused_s >= REFUSED_S
