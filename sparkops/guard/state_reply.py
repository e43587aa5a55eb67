"""What a guard replies to an operator who asks for the state of a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.guard.direct import DirectView
from sparkops.guard.door import Question
from sparkops.guard.durable import Unreadable
from sparkops.guard.leading import EVENTS_POLL_S, Leading
from sparkops.nodes.waiting import Waiting
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.seen import GatewayView, Report, Seen


def as_json(
    journal: Journal | None,
    seen: Seen | None = None,
    progress: Mapping[str, Mapping[str, str]] | None = None,
    *,
    lost: Mapping[str, str],
    last: int,
) -> dict[str, Any]:
    """Return the reply. Without `seen` the guard does not lead the service, and has a copy of its journal at most."""
    reports, gateway = (seen.reports, seen.gateway) if seen else ({}, None)
    expected = {journal.leader, *journal.peers} if journal else set()
    return {
        "journal": wire.plain(Journal, journal) if journal else None,
        "direct": False,
        "needs_operator": "",
        "reports": {node: wire.plain(Report, report) for node, report in reports.items()},
        "gateway": wire.plain(GatewayView, gateway) if gateway else None,
        "progress": {node: dict(texts) for node, texts in (progress or {}).items() if texts},
        "missing": sorted(expected - set(reports)),
        "why_missing": dict(lost),
        "last": last,
    }


@dataclass(frozen=True)
class ReadVerbs:
    """What the door answers about services."""

    leading: Leading

    def verbs(self) -> dict[str, Callable[[Question], object]]:
        """Return the verbs by name."""
        state = self.leading.state
        return {
            "services": lambda _: state.services(),
            "state": lambda request: self.shown(request["service"]),
            "events": self._events,
            "starts": lambda request: state.starts(request["service"]),
        }

    def shown(self, service: str) -> dict[str, Any]:
        """Return all that is known of a service. Where another guard leads it: the copy of its journal."""
        leading, lead = self.leading, self.leading.leads.get(service)
        copy, trouble = self._copy(service)
        events = leading.state.events(service) if lead or copy else []
        last, reach = events[-1]["n"] if events else 0, leading.members.reach
        if lead is None or (copy and copy.term > lead.journal.term):
            return {**as_json(copy, lost=reach.lost, last=last), "needs_operator": trouble}
        progress = {**reach.progress(service), leading.node.name: leading.follower.progress(service)}
        shown = as_json(lead.journal, lead.seen, progress, lost=reach.lost, last=last)
        return {**shown, "needs_operator": lead.trouble(), "direct": isinstance(lead.view, DirectView)}

    def _copy(self, service: str) -> tuple[Journal | None, str]:
        """The copy of the journal, and why an operator is needed for this service."""
        try:
            self.leading.state.journal(service)
            return self.leading.state.record(service).copy, ""
        except Unreadable as error:
            return None, str(error)

    def _events(self, request: Question) -> list[dict[str, Any]]:
        """The events after number `since`, as soon as there is one, or none after `wait_s` seconds."""
        service, since = request["service"], int(request.get("since", 0))
        waiting = Waiting(EVENTS_POLL_S, float(request.get("wait_s", 0.0)))
        return waiting.poll(lambda: self.leading.state.events(service, since), bool)
