"""Differences between the state of the nodes, the gateway and the intentions of the guards. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkops.docker.places import CONTAINER, GATEWAY
from sparkops.errors import NodeError, NotReady
from sparkops.status.observation import NodeReport, ServiceReport, missing, replicas
from sparkops.status.picture import Drift
from sparkops.swap import trouble
from sparkops.swap.journal import Journal

NEEDS_PERSON = "NEEDS_PERSON"
GUARD_DOWN = "GUARD_DOWN"
GUARD_SILENT = "GUARD_SILENT"
CORDON_UNREAD = "CORDON_UNREAD"
URGENCY = (NEEDS_PERSON, GUARD_DOWN, "LIVE_NOT_RUNNING", "RESTARTING", "RANK_MISSING", GUARD_SILENT)
"""Codes that are shown before the others, the most urgent first."""


def of_service(service: ServiceReport) -> Iterator[Drift]:
    """Yield every difference in one service."""
    name = service.name
    running = [rank.container for rank in service.ranks if rank.container.running]
    for container in running:
        if container.state == "restarting":
            detail = f"{container.name} is in a restart loop"
            yield Drift(code="RESTARTING", node=container.node, detail=detail, next_step=f"sparkops logs {name}")
    for container in (rank.container for rank in service.ranks if rank.listed):
        detail = f"{container.name}: Docker does not answer `docker inspect`, only its list is known"
        step = f"docker inspect {container.name}, on {container.node}; a restart of Docker may be needed"
        yield Drift(code="NOT_INSPECTED", node=container.node, detail=detail, next_step=step)
    for ranks in replicas(service.ranks):
        for number in missing(ranks):
            head = ranks[0].container
            detail = f"{name}: rank {number} of {head.release} ({head.slot}) is not running, so the replica cannot work"
            yield Drift(code="RANK_MISSING", node=head.node, detail=detail, next_step=f"sparkops history {name}")
    yield from _of_journals(service)
    yield from _of_traffic(service)
    yield from _of_releases(service)
    for container in running if service.states else ():
        if container.restart_policy != "no":
            detail = f"{container.name} has Docker's restart policy {container.restart_policy}: its guard starts it"
            step = f"docker update --restart=no {container.name}, on {container.node}"
            yield Drift(code="RESTART_POLICY", node=container.node, detail=detail, next_step=step)


def _of_traffic(service: ServiceReport) -> Iterator[Drift]:
    active = service.front.active if service.front else None
    if active and service.live is None:
        containers = (rank.container for rank in service.ranks)
        node = next((container.node for container in containers if container.release == active.release), "")
        detail = f"{service.name}: {active.release} is active but not running"
        journal = next(iter(service.journals), Journal(service.name, ""))
        missing = [name for state in service.states for name in state.missing]
        step = trouble.next_step(journal, f"{active.release} does not answer", missing)
        yield Drift(code="LIVE_NOT_RUNNING", node=node, detail=detail, next_step=step)


def _of_journals(service: ServiceReport) -> Iterator[Drift]:
    """Yield what the leader cannot continue without an operator, and the guards that it does not reach."""
    name = service.name
    for state in service.states:
        leader = state.journal.leader
        if state.direct and state.journal.deployments:
            detail = f"{name} serves without a gateway, by an earlier version of sparkops: it can only be stopped"
            step = f"sparkops stop {name}, then deploy it again"
            yield Drift(code="NO_GATEWAY", node=leader, detail=detail, next_step=step)
        if state.needs_operator:
            detail = f"{name}: {trouble.reason(state.needs_operator)}"
            step = trouble.next_step(state.journal, state.needs_operator, state.missing)
            yield Drift(code=NEEDS_PERSON, node=leader, detail=detail, next_step=step)
        for node in sorted(set(state.missing) & set(state.why_missing)):  # a guard that has just started asks soon
            why = state.why_missing[node]
            detail = f"{name}: {leader} cannot reach the guard of {node}, swaps wait: {why}"
            step = f"docker logs {CONTAINER}, on {node}"
            yield Drift(code="GUARD_NOT_REACHED", node=node, detail=detail, next_step=step)


def _of_releases(service: ServiceReport) -> Iterator[Drift]:
    """Yield containers that no release needs. Two releases are right during a swap, and while the old one is warm."""
    if not service.led:
        return  # which releases it needs is unknown
    if service.front is None:
        return
    deployments = [deployment for journal in service.journals for deployment in journal.deployments]
    needed = {rank.place for deployment in deployments for rank in deployment.ranks}
    for rank in service.ranks:
        container = rank.container
        if container.running and (container.node, container.name) not in needed and rank not in service.live_ranks:
            detail = f"{container.name} runs, but no release of its service needs it"
            step = f"docker stop {container.name}, on {container.node}"
            yield Drift(code="ORPHAN", node=container.node, detail=detail, next_step=step)


def of_guards(reports: Sequence[NodeReport]) -> Iterator[Drift]:
    """Yield the guards whose journals or cordon could not be read."""
    for report in reports:
        if error := report.guard_error:
            problem = error.problem if isinstance(error, NodeError) else str(error)
            detail = f"{problem}; what it leads is shown from containers and gateway"
            code = GUARD_DOWN if isinstance(error, NotReady) else GUARD_SILENT
            yield Drift(code=code, node=report.name, detail=detail, next_step=error.next_step)
        if error := report.cordon_error:
            problem = error.problem if isinstance(error, NodeError) else str(error)
            detail = f"{problem}; nothing new starts there until it can be read"
            yield Drift(code=CORDON_UNREAD, node=report.name, detail=detail, next_step=error.next_step)


def of_gateway(reports: Sequence[NodeReport]) -> list[Drift]:
    """Return the differences in the gateway itself."""
    return [
        Drift(code=code, node=report.name, detail=detail, next_step=f"docker logs {GATEWAY}, on {report.name}")
        for report in reports
        if report.gateway
        for code, detail in report.gateway.drift
    ]
