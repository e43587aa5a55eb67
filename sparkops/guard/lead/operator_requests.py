"""Requests of operators about services: their state, events and starts, and leases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sparkops.errors import Busy
from sparkops.guard.disk.durable import Unreadable
from sparkops.guard.follow.engines import reason
from sparkops.guard.lead.leadership import EVENTS_POLL_S, Leadership
from sparkops.guard.lead.leases import Leases
from sparkops.guard.lead.operator_socket import Request
from sparkops.node.cordon import Cordon
from sparkops.node.waiting import Waiting
from sparkops.swap import wire
from sparkops.swap.fleet_state import FleetState, GatewayView, Report
from sparkops.swap.intents import changing
from sparkops.swap.journal import Journal
from sparkops.swap.model import RankSpec


def as_json(
    journal: Journal | None,
    fleet: FleetState,
    progress: Mapping[str, Mapping[str, str]],
    lost: Mapping[str, str],
    last: int,
    warm_until: float | None = None,
    promoted: Iterable[RankSpec] = (),
) -> dict[str, Any]:
    """Return the reply to `state`, where nothing needs an operator and the service is behind a gateway."""
    expected = {journal.leader, *journal.peers, *(rank.node for rank in journal.halting)} if journal else set()
    return {
        "journal": wire.plain(Journal, journal) if journal else None,
        "needs_operator": "",
        "reports": {node: wire.plain(Report, report) for node, report in fleet.reports.items()},
        "gateway": wire.plain(GatewayView, fleet.gateway) if fleet.gateway else None,
        "progress": {node: dict(texts) for node, texts in progress.items() if texts},
        "missing": sorted(expected - set(fleet.reports)),
        "why_missing": dict(lost),
        "last": last,
        "warm_until": warm_until,
        "promoted": [wire.plain(RankSpec, rank) for rank in promoted],
    }


@dataclass(frozen=True)
class OperatorRequests:
    """The requests that change no service. `leadership` has the services that this guard leads."""

    leadership: Leadership

    def verbs(self) -> dict[str, Callable[[Request], object]]:
        state = self.leadership.state
        return {
            "services": lambda _: state.services(),
            "state": lambda request: self.shown(request["service"]),
            "events": self._events,
            "starts": lambda request: state.starts(request["service"]),
            "lease": self._lease,
            "cordon": lambda _: wire.plain(Cordon, self.leadership.state.cordon()),
            "set_cordon": self._set_cordon,
        }

    def shown(self, service: str) -> dict[str, Any]:
        """Return the state of a service; where another guard leads it, the copy of its journal."""
        leadership, lead = self.leadership, self.leadership.leads.get(service)
        copy, trouble = self._copy(service)
        events = leadership.state.events(service) if lead or copy else []
        last, reach = events[-1]["n"] if events else 0, leadership.members.reach
        promoted = tuple(leadership.promoted(besides=service))
        if lead is None or (copy and copy.term > lead.journal.term):
            shown = as_json(copy, FleetState(), {}, reach.lost, last, promoted=promoted)
            return {**shown, "needs_operator": trouble}
        progress = {**reach.progress(service), leadership.node.name: leadership.follower.progress(service)}
        shown = as_json(lead.journal, lead.fleet, progress, reach.lost, last, lead.warm_until(), promoted)
        return {**shown, "needs_operator": trouble or lead.trouble()}

    def _copy(self, service: str) -> tuple[Journal | None, str]:
        """Return the copy of the journal, and the file that cannot be read, with the way to go on without it."""
        try:
            self.leadership.state.journal(service)
            return self.leadership.state.record(service).copy, ""
        except Unreadable as error:
            return None, reason(error)

    def _events(self, request: Request) -> list[dict[str, Any]]:
        """Return the events after number `since`, as soon as one exists, or none after `wait_s` seconds."""
        service, since = request["service"], int(request.get("since", 0))
        waiting = Waiting(EVENTS_POLL_S, float(request.get("wait_s", 0.0)))
        return waiting.poll(lambda: self.leadership.state.events(service, since), bool)

    def _lease(self, request: Request) -> AbstractContextManager[None]:
        if request["kind"] == "deploy":
            return self._of_deploy(request["holder"], request["service"])
        kinds = {"node": self.leadership.follower.lease, "agents": self._of_agents}
        return kinds[request["kind"]](request["holder"])

    def _set_cordon(self, request: Request) -> None:
        was, to = (wire.load_value(Cordon, request[word]) for word in ("was", "to"))
        self.leadership.follower.set_cordon(was, to)

    def _of_agents(self, holder: str) -> AbstractContextManager[None]:
        """Refuse every intent while the returned context lasts. Raises Busy while a service changes.

        The lease comes first: an intent that is accepted meanwhile is found here, or finds the lease.
        """
        agents = self.leadership.agents
        _take_alone(agents, holder)
        for service, lead in tuple(self.leadership.leads.items()):
            with lead.lock:
                why = changing(lead.journal)
            if why:
                agents.remove(holder)
                raise Busy(why, next_step=f"sparkops status {service} --follow")
        return agents.until_end(holder)

    def _of_deploy(self, holder: str, service: str) -> AbstractContextManager[None]:
        """Refuse other deploys of a service while the returned context lasts. Raises Busy during one.

        A deploy checks much before its intent: of two, one does it.
        """
        deploys = self.leadership.deploys.setdefault(service, Leases())
        _take_alone(deploys, holder)
        return deploys.until_end(holder)


def _take_alone(leases: Leases, holder: str) -> None:
    if other := leases.add_alone(holder):
        raise Busy(f"{other} is in progress", next_step="`--wait 10m` retries.")
