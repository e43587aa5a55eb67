"""Requests for leases: of this node for shared work, of the fleet's agents for their change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sparkops.errors import Busy
from sparkops.guard.door import Question
from sparkops.guard.leading import Leading
from sparkops.swap.intents import changing


@dataclass(frozen=True)
class LeaseVerbs:
    """What the door answers about leases."""

    leading: Leading

    def verbs(self) -> dict[str, Callable[[Question], object]]:
        """Return the verbs by name."""
        return {"lease": self._lease}

    def _lease(self, request: Question) -> AbstractContextManager[None]:
        kinds = {"node": self.leading.follower.lease, "agents": self._of_agents}
        return kinds[request["kind"]](request["holder"])

    def _of_agents(self, holder: str) -> AbstractContextManager[None]:
        """Refuse every intent while the returned context lasts. Raises Busy while a service changes.

        The lease is noted first: an intent that is accepted meanwhile is seen here, or sees the lease.
        """
        agents = self.leading.agents
        if other := agents.add_alone(holder):
            raise Busy(f"{other} is in progress", next_step="`--wait SECONDS` retries.")
        for service, lead in tuple(self.leading.leads.items()):
            with lead.lock:
                why = changing(lead.journal)
            if why:
                agents.remove(holder)
                raise Busy(why, next_step=f"sparkops follow {service}")
        return agents.until_end(holder)
