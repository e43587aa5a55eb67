"""What a new release would replace: the state before a swap. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.errors import Busy
from sparkops.guard_client.service_state import ServiceState, ways_out
from sparkops.names import Slot
from sparkops.startup.estimate import Forecast
from sparkops.swap.model import Deployment


@dataclass(frozen=True)
class Current:
    """The state before a swap: the release that serves, and the slot of the one that serves or served last."""

    blue: Deployment | None = None
    slot: Slot | None = None
    idle: tuple[Deployment, ...] = ()
    """Releases without traffic whose engines may run: warm for a rollback, or failed. They make room."""
    ending: frozenset[tuple[str, str]] = frozenset()
    """Node and container of engines that the leader stops. Until a guard has confirmed it, they may hold memory."""
    direct: bool = False
    """Whether clients call the engine itself: without a gateway no second release can have its port."""
    gap: Forecast | None = None
    """How long the new release takes to start on the node of the one that serves; None: unknown."""

    @property
    def down_for(self) -> str:
        """How long a service is down in place, in words."""
        return "while green starts" + (f": {self.gap}" if self.gap else "")


def current(state: ServiceState) -> Current:
    """Return what a new release would replace. Raises Busy while a swap is in progress or the service is stopped."""
    journal, swap = state.journal, state.swap
    if journal.stopping:
        raise Busy(f"{journal.service} is being stopped", next_step=f"sparkops follow {journal.service}")
    if swap and not (journal.trouble and state.fails):
        problem = f"a swap to {swap.target.release} is in phase '{swap.phase}'"
        raise Busy(problem, next_step="\n".join(ways_out(journal.service)))
    serving = None if state.fails else journal.active
    slot = journal.active.slot if journal.active else None
    idle = tuple(item for item in journal.deployments if item != serving)
    return Current(serving, slot, idle, frozenset(rank.place for rank in journal.stopped))
