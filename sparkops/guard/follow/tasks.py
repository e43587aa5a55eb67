"""Tasks of a guard that take time, and what they measure."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from sparkops.swap.effects import CreateEngine, FollowerEffect, ProveEngine, StartEngine, StopEngine


@dataclass(frozen=True)
class Measure:
    """Task of a guard: find out what is free for the start of a container. Not an effect: it changes nothing."""

    container: str
    reserved_gib: float = 0.0
    """Memory that the start leaves for promoted engines of other services, in GiB."""

    def __str__(self) -> str:
        return f"measure free memory for {self.container}"


Task = FollowerEffect | Measure


Act = CreateEngine | StartEngine | StopEngine | ProveEngine | Measure
"""Tasks that take time. The others are notes on disk."""


@dataclass
class Job:
    """A task in a thread of its own. `cancel` ends a measurement or a smoke suite."""

    task: Act
    cancel: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class MeasuredRoom:
    """GiB that were free for a container, measured from `began_s` to `ended_s` (monotonic seconds)."""

    free_gib: float
    began_s: float
    ended_s: float
