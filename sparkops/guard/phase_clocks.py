"""How long a phase of a swap has taken."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_GAP_S = 5.0  # time in which this process did not run is no time in which requests were sampled


@dataclass
class PhaseClocks:
    """The seconds of a phase: those in which requests were sampled, and those in which nothing has moved."""

    sampled_s: float = 0.0
    waited_s: float = 0.0
    phase: object = None
    moved: object = None
    last_s: float | None = None

    def tick(self, now_s: float, phase: object, moved: object, *, sampled: bool) -> None:
        """Advance by the time since the last call."""
        passed_s = 0.0 if self.last_s is None else min(now_s - self.last_s, LONGEST_GAP_S)
        self.last_s = now_s
        if phase != self.phase:
            self.sampled_s = self.waited_s = 0.0
        elif sampled:
            self.sampled_s += passed_s
        self.waited_s = 0.0 if (phase, moved) != (self.phase, self.moved) else self.waited_s + passed_s
        self.phase, self.moved = phase, moved
