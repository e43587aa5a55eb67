"""Which notice is sent next and when, from the answers of the receiver. Pure.

While a receiver does not answer, the oldest notice waits for it, and the others behind it. One that it answers, but
does not take, is set aside after TRIES attempts: newer ones, which may be critical, overtake it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 300.0
"""Seconds before the second attempt, doubled at each further one up to the longest: an event that is told five minutes
after the receiver is back is still early, and a dead receiver costs a guard one connection in that time."""
TRIES = 3
"""Attempts with an answer after which a notice is set aside: with their pauses, what restarts is back by then."""
REFUSED_S = 6 * 3600.0
"""Seconds for which a refused notice is sent again. A wrong path or key is corrected within a working day's half."""
LATER = frozenset({408, 425, 429})
"""Statuses of the 4xx that ask for another attempt (RFC 9110, 8470, 6585)."""


class Outcome(Enum):
    """The result of one attempt."""

    DELIVERED = "delivered"
    UNANSWERED = "unanswered"
    """No answer: it is repeated for as long as the notice is kept."""
    FAILED = "failed"
    """An answer that another attempt may change: it is repeated for as long as the notice is kept."""
    REFUSED = "refused"
    """An answer that says that the request is wrong: it is repeated for REFUSED_S."""


def outcome(status: int) -> Outcome:
    """Return what a status of HTTP says. A redirect is refused: only the inventory says where notices go."""
    if 200 <= status < 300:
        return Outcome.DELIVERED
    return Outcome.REFUSED if 300 <= status < 500 and status not in LATER else Outcome.FAILED


@dataclass(frozen=True)
class Attempts:
    """The attempts to send one notice, none of which delivered it. Times in seconds that only grow."""

    number: int = 0
    answered: int = 0
    """Those with an answer."""
    unanswered: bool = False
    """Whether the last one had none."""
    last_s: float = -inf
    refused_s: float | None = None
    """When it was refused first."""

    def after(self, result: Outcome, at_s: float) -> Attempts:
        """Return the attempts with one more that was not delivered."""
        unanswered = result is Outcome.UNANSWERED
        refused_s = at_s if result is Outcome.REFUSED and self.refused_s is None else self.refused_s
        return Attempts(self.number + 1, self.answered + (not unanswered), unanswered, at_s, refused_s)

    @property
    def pause_s(self) -> float:
        """Return the seconds before the next attempt."""
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self.number - 1, 20)) if self.number else 0.0

    @property
    def due_s(self) -> float:
        """Return when the next attempt is due; minus infinity before the first."""
        return self.last_s + self.pause_s

    @property
    def is_overtaken(self) -> bool:
        """Return whether newer notices are sent first."""
        return self.answered >= TRIES

    def given_up(self, at_s: float) -> bool:
        """Return whether the notice is not sent again."""
        return self.refused_s is not None and at_s - self.refused_s >= REFUSED_S


@dataclass(frozen=True)
class Schedule:
    """The attempts of one receiver by number of notice, and those of all that are set aside since one was delivered.

    What is set aside shares its pauses: a receiver that takes none gets one attempt in LONGEST_PAUSE_S for all of it.
    """

    attempts: Mapping[int, Attempts] = field(default_factory=dict)
    aside: Attempts = field(default_factory=Attempts)

    def of(self, n: int) -> Attempts:
        """Return the attempts to send notice `n`."""
        return self.attempts.get(n, Attempts())

    def following(self, newest: int | None, aside: Collection[int]) -> tuple[int, float] | None:
        """Return the notice that is sent next, and when; None without any.

        `newest`: the first of those that were not overtaken. Of those set aside, the one with the fewest attempts is
        next, of several the oldest.
        """
        times: dict[int, float] = {}
        if newest is not None:
            times[newest] = self.of(newest).due_s
        if aside and not (newest is not None and self.of(newest).unanswered):
            times[min(aside, key=lambda n: (self.of(n).number, n))] = self.aside.due_s
        return min(times.items(), key=lambda item: item[1], default=None)

    def failed(self, n: int, result: Outcome, at_s: float, aside: Collection[int]) -> Schedule:
        """Return the schedule after an attempt that did not deliver notice `n`. `aside`: those that are set aside."""
        known = {number: attempts for number, attempts in self.attempts.items() if number >= n or number in aside}
        shared = self.aside.after(result, at_s) if n in aside else self.aside
        return Schedule({**known, n: self.of(n).after(result, at_s)}, shared)

    def overtaken(self, n: int) -> Schedule:
        """Return the schedule after notice `n` was set aside, with its pause if it is the only one there."""
        return self if self.aside.number else replace(self, aside=self.of(n))

    def ended(self, n: int, *, resumes: bool) -> Schedule:
        """Return the schedule without notice `n`. `resumes`: it was set aside and is delivered; the others follow."""
        known = {number: attempts for number, attempts in self.attempts.items() if number != n}
        return Schedule(known, Attempts() if resumes else self.aside)
