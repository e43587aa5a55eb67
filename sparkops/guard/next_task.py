"""The next task of a guard for one service: the machine's effect, once the memory that it needs is measured. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sparkops.guard.local_service import LocalService
from sparkops.guard.tasks import Measure, MeasuredRoom, Task
from sparkops.swap import orders
from sparkops.swap.effects import MarkRestart, MarkStart
from sparkops.swap.follower import reconcile

ROOM_S = 3.0
"""How long a measurement of free memory counts."""


@dataclass(frozen=True)
class Moment:
    """The state of the node at a decision. Times in monotonic seconds.

    `blocked`: another engine of the node loads, or nothing may load now. `marked_s`: when a start was marked last on
    the node.
    """

    boot: str
    blocked: bool
    marked_s: float
    now_s: float

    def counts(self, room: MeasuredRoom | None) -> bool:
        """Return whether a measurement is recent, and no start has begun since."""
        return room is not None and room.began_s > self.marked_s and self.now_s - room.ended_s < ROOM_S


def next_task(service: LocalService, moment: Moment) -> Task | None:
    """Return the next task; None while there is nothing to do.

    An engine that does not fit must not keep a smaller one of the boot record from starting.
    """
    free_gib = -math.inf if moment.blocked else math.inf
    while True:
        effect = reconcile(service.order, service.local(moment.boot, free_gib, moment.now_s))
        if not isinstance(effect, MarkStart | MarkRestart):
            return effect
        room = service.start(effect.container).room
        if room is None or not moment.counts(room):
            return Measure(effect.container)
        if room.free_gib >= service.ranks[effect.container].claim_gib:
            return effect
        free_gib = min(free_gib, room.free_gib)


def next_start(service: LocalService, moment: Moment) -> str:
    """Return the container that would start next if nothing blocked it; empty without one."""
    task = next_task(service, replace(moment, blocked=False))
    return task.container if isinstance(task, MarkStart | MarkRestart | Measure) else ""


def load_ahead(service: LocalService, moment: Moment) -> str:
    """Return why work that takes a node's memory must wait for this service; empty if nothing loads or soon may."""
    if service.loads:
        return f"an engine of {service.name} loads"
    if container := next_start(service, moment):
        return f"{container} is about to start"
    return orders.load_ahead(service.journal, service.node) if service.journal else ""
