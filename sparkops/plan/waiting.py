"""What a run reports about the lock that it waits for. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from sparkops.plan.journal import Holder, Phase
from sparkops.plan.lock import named
from sparkops.plan.pace import spell
from sparkops.plan.startup import Watch

REPEAT_S = 60.0  # a plain log shows that the wait goes on, without a line per poll


@dataclass(frozen=True)
class LockReport:
    """The run that holds a lock and how far it is. None and empty stand for unknown.

    `held_s` is in seconds; `start` is the start that the run watches, `left` its time left in words.
    """

    service: str
    holder: Holder
    held_s: float | None = None
    phase: Phase | None = None
    start: Watch | None = None
    left: str = ""
    problem: str = ""
    """Why the start could not be read."""

    @property
    def key(self) -> tuple[object, ...]:
        """Changes if another run, phase or stage is reported."""
        return self.holder.deploy, self.phase, self.start.stage if self.start else None, self.problem

    def __str__(self) -> str:
        since = f" for {spell(self.held_s)}" if self.held_s is not None else ""
        phase = f", phase {self.phase}" if self.phase else ""
        stage = f": {self.start.text}" if self.start else ""
        left = f" ({self.left})" if self.left else ""
        problem = f"; stage unknown: {self.problem}" if self.problem else ""
        return (
            f"waiting for the lock of {self.service}: held by {named(self.holder)}{since}{phase}{stage}{left}{problem}"
        )


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
