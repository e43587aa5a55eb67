"""What a leader reports of a service whose old release serves on n1, and a planned deploy of the next one."""

from __future__ import annotations

from typing import Any

from sparkops.config.release import Release
from sparkops.names import Slot
from sparkops.operator.deploy.deployment import deployment
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preconditions import Current
from sparkops.serving.service_state import ServiceState
from sparkops.swap.fleet_state import EngineReport, EngineState, GatewayView, Report
from sparkops.swap.intents import Deploy
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, Phase
from tests.operator.deploy.swaps import BLUE_RUNS, NEW, OLD, on, plan

ADDRESSES = {"n1": "127.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3"}
EMPTY = Journal("chat", "n1", ("n2",))
REPLY: dict[str, object] = {
    "journal": None,
    "needs_operator": "",
    "reports": {},
    "gateway": None,
    "progress": {},
    "missing": [],
    "why_missing": {},
    "last": 0,
}
"""A leader's reply for a service without a deploy."""


def deployed(of: Release = OLD, node: str = "n1") -> Deployment:
    """The first release of a service, on a node."""
    swap_plan = plan(Current(), DeployOptions(nodes=(node,)), of, **{node: on(90)})
    return deployment(swap_plan, ADDRESSES)


def target(of: Release = NEW, node: str = "n1", options: DeployOptions | None = None) -> Deploy:
    """The intent that replaces `deployed` by the next release, on the same node or another one."""
    current = Current(deployed(), Slot.BLUE)
    nodes = {"n1": on(90, BLUE_RUNS), node: on(90, BLUE_RUNS) if node == "n1" else on(90)}
    swap_plan = plan(current, options or DeployOptions(nodes=(node,)), of, **nodes)
    return Deploy("i1", 7, deployment(swap_plan, ADDRESSES), swap_plan.mode)


def serving(of: Release = OLD, **changes: Any) -> ServiceState:
    """The state in which a release serves on n1, at revision 7. `changes` are those of the journal."""
    active = deployed(of)
    journal = Journal("chat", "n1", ("n2",), revision=7, active=active)
    return reported(Journal(**{**_fields(journal), **changes}))


def reported(journal: Journal, answer: Answer = Answer.YES) -> ServiceState:
    """The state of a journal whose releases all run and give this answer."""
    items, active = journal.deployments, journal.active
    reports = {}
    for node in ("n1", "n2"):
        here = [rank.container for item in items for rank in item.on(node)]
        armed = next((rank.container for rank in active.on(node)), "") if active else ""
        engines = tuple(EngineReport(container, EngineState.HEALTHY) for container in here)
        reports[node] = Report(node, f"boot of {node}", 1, journal.revision, journal.revision, engines, armed)
    slots = {item.slot: item.release for item in items}
    view = GatewayView(active.slot if active else None, slots, {item.slot: answer for item in items})
    return ServiceState(journal, reports=reports, gateway=view, last=3)


def swapping(phase: Phase, **changes: Any) -> ServiceState:
    """The state of a swap from OLD to NEW in a phase."""
    intent = target()
    journal = serving().journal.begun(intent.id, intent.mode, intent.target, automatic=changes.pop("automatic", True))
    while journal.swap and journal.swap.phase is not phase:
        journal = journal.advanced()
    return reported(Journal(**{**_fields(journal), **changes}))


def _fields(journal: Journal) -> dict[str, Any]:
    return {name: getattr(journal, name) for name in journal.__dataclass_fields__}
