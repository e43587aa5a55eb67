"""A change as its follower reads it: a line for each thing that is complete, from the leader's events. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkops.serving.startup.durations import spell
from sparkops.swap.model import Phase

STARTING = (Phase.WORKERS, Phase.START, Phase.LOAD)
CHECKS = re.compile(r"\d+ of (\d+) checks passed")
ENDINGS = ("intent", "end", "trouble")
"""Kinds of events that the verb prints by itself: what was requested, and the result."""


@dataclass
class Narration:
    """The phases of a change so far."""

    checks: int = 0
    """Checks of the smoke suite, once its progress was read."""
    phase: Phase | None = None
    entered: dict[Phase, datetime] = field(default_factory=dict)
    nodes: str = ""

    def read(self, progress: str) -> bool:
        """Read a progress text of an engine. Returns whether it is one of the smoke suite."""
        match = CHECKS.fullmatch(progress)
        self.checks = int(match[1]) if match else self.checks
        return match is not None

    def line(self, event: Mapping[str, Any]) -> str:
        """Return the line that an event adds to a log; empty for none. Raises KeyError, TypeError, ValueError."""
        match event["kind"]:
            case "phase":
                return self._phase(Phase(event["phase"]), event)
            case "failure":
                self.phase = None  # what it was in is not complete
                why, _, follows = str(event["text"]).rpartition("; ")
                return f"{why.splitlines()[0]}; {follows}" if why else str(event["text"])
            case kind if kind in ENDINGS:
                return ""
            case _:
                return str(event["text"])

    def _phase(self, phase: Phase, event: Mapping[str, Any]) -> str:
        at = datetime.fromisoformat(event["at"])
        before, self.phase = self.phase, phase
        if before is None or phase.order < before.order:  # another swap, or the way back
            self.entered, before = {}, None
        self.entered[phase] = at
        line = self._complete(before, at) if before else ""
        self.nodes = ", ".join(event["nodes"])
        return line or (self._begins(event) if before is None and phase.order <= Phase.LOAD.order else "")

    def _begins(self, event: Mapping[str, Any]) -> str:
        replaces = f" replaces {event['replaces']}" if event["replaces"] else ""
        return f"{event['release']}{replaces} on {', '.join(event['nodes'])}, mode {event['mode']}"

    def _complete(self, phase: Phase, at: datetime) -> str:
        """Return the line of a phase that is complete; empty for one that takes no time worth a line."""
        match phase:
            case Phase.FREE:
                return f"old release stopped, {self._took(at, Phase.FREE)}"
            case Phase.LOAD:
                return f"started on {self.nodes}, {self._took(at, *STARTING)}"
            case Phase.VERIFY:
                return f"{self.checks or 'all'} checks passed, {self._took(at, Phase.VERIFY)}"
            case Phase.BAKE:
                return f"watched for {self._took(at, Phase.BAKE)}, no problem"
            case _:
                return ""

    def _took(self, at: datetime, *phases: Phase) -> str:
        first = min(self.entered[phase] for phase in phases if phase in self.entered)
        return spell((at - first).total_seconds())
