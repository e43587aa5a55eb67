"""The next task of a guard for one service: the machine's effect, once the memory that it needs is measured. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sparkops.guard.follow.local_service import LocalService
from sparkops.guard.follow.tasks import Measure, MeasuredRoom, Task
from sparkops.swap import orders
from sparkops.swap.effects import MarkRestart, MarkStart
from sparkops.swap.follower import reconcile, reserved_gib

ROOM_S = 3.0
"""How long a measurement of free memory counts."""


@dataclass(frozen=True)
class Moment:
    """The state of the node at a decision. Times in monotonic seconds.

    `blocked`: another engine of the node loads, or nothing may load now. `marked_s`: when a start was marked last on
    the node. `reserved_gib`: memory of the promoted engines of other services that do not run.
    """

    boot: str
    blocked: bool
    marked_s: float
    now_s: float
    reserved_gib: float = 0.0

    def counts(self, room: MeasuredRoom | None) -> bool:
        """Return whether a measurement is recent, and no start has begun since."""
        return room is not None and room.began_s > self.marked_s and self.now_s - room.ended_s < ROOM_S


def next_task(service: LocalService, moment: Moment) -> Task | None:
    """Return the next task; None while there is nothing to do.

    An engine that does not fit must not keep a smaller one of the boot record from starting.
    """
    free_gib = -math.inf if moment.blocked else math.inf
    while True:
        local = replace(service.local(moment.boot, free_gib, moment.now_s), reserved_gib=moment.reserved_gib)
        effect = reconcile(service.order, local)
        if not isinstance(effect, MarkStart | MarkRestart):
            return effect
        room, rank = service.start(effect.container).room, service.ranks[effect.container]
        if room is None or not moment.counts(room):
            return Measure(effect.container, reserved_gib(rank, local))
        if room.free_gib >= rank.claim_gib + reserved_gib(rank, local):
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
