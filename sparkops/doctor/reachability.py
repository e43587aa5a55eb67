"""Findings about guards and the gateway: whether they answer on their nodes, the leader and this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkops.docker.places import CONTAINER, GATEWAY
from sparkops.doctor.node_facts import NodeFacts, warning
from sparkops.errors import NodeError, SparkopsError
from sparkops.network.finding import Finding
from sparkops.status.drift import NEEDS_PERSON
from sparkops.status.node_row import NodeRow
from sparkops.status.observation import NodeReport
from sparkops.status.picture import Drift
from sparkops.watch.finding import EngineFinding

STARTABLE = ("created", "exited")
NOT_REACHED = "GUARD_NOT_REACHED"
Reports = Mapping[str, NodeReport | SparkopsError]


def findings(nodes: Sequence[NodeFacts], reports: Reports, drift: Sequence[Drift]) -> Iterator[Finding]:
    """Yield the agents that do not run or do not answer. `reports` and `drift` are those of status."""
    for node in nodes:
        yield from _of_node(node, reports.get(node.name))
    for row in drift:
        if row.code == NOT_REACHED:
            step = f"docker logs --tail 50 {CONTAINER}, on both nodes; docs/security.md lists the port"
            yield Finding(code="GUARD_NOT_REACHED", node=row.node, problem=row.detail, next_step=step)


def unresolved(drift: Sequence[Drift]) -> Iterator[Finding]:
    """Yield the services that need an operator, with the next step that status shows."""
    for row in drift:
        if row.code == NEEDS_PERSON:
            yield Finding(code="NEEDS_PERSON", node=row.node, problem=row.detail, next_step=row.next_step)


def watched(found: Sequence[EngineFinding]) -> Iterator[Finding]:
    """Yield the findings of the guards' watch, as status shows them."""
    for finding in found:
        problem = f"{finding.container}: {finding.detail}"
        yield warning(finding.code, finding.node, problem, finding.next_step)


def cordoned(nodes: Sequence[NodeRow]) -> Iterator[Finding]:
    """Yield the nodes on which nothing new starts, and those to which services have not returned."""
    for node in nodes:
        taken = f"{', '.join(node.displaced)} not returned" if node.displaced else ""
        if problem := "; ".join(filter(None, (node.cordon and f"cordoned: {node.cordon}", taken))):
            yield warning("CORDONED", node.name, problem, f"sparkops node return {node.name}")


def _of_node(node: NodeFacts, report: NodeReport | SparkopsError | None) -> Iterator[Finding]:
    if down := _down("GUARD_DOWN", CONTAINER, node):
        yield down
    elif isinstance(report, SparkopsError):
        yield _unread(code="STATUS_FAILED", node=node.name, error=report)
    elif report and report.guard_error:
        yield _unread(code="GUARD_SILENT", node=node.name, error=report.guard_error)
    if isinstance(report, NodeReport) and report.cordon_error:
        yield _unread(code="CORDON_UNREAD", node=node.name, error=report.cordon_error)
    if down := _down("GATEWAY_DOWN", GATEWAY, node):
        yield down
    elif isinstance(report, NodeReport) and report.gateway and report.gateway.problem:
        problem, step = f"{GATEWAY} does not answer: {report.gateway.problem}", f"docker logs --tail 50 {GATEWAY}"
        yield Finding(code="GATEWAY_DOWN", node=node.name, problem=problem, next_step=step)


def _down(code: str, container: str, node: NodeFacts) -> Finding | None:
    """Return a finding if a container exists and does not run."""
    state = node.agents.get(container, "running")
    if state == "running":
        return None
    startable = state in STARTABLE
    step = f"docker start {container}" if startable else f"docker logs --tail 50 {container}"
    problem = f"the container {container} is {state}"
    return Finding(code=code, node=node.name, problem=problem, next_step=step, fixable=startable)


def _unread(*, code: str, node: str, error: SparkopsError) -> Finding:
    problem = error.problem if isinstance(error, NodeError) else str(error)
    return Finding(code=code, node=node, problem=problem, next_step=error.next_step or "sparkops status")


def closed(node: str, address: str, why: str) -> Finding:
    """Return the finding for an address of the gateway that refuses connections from this machine."""
    problem = f"no connection from this machine to the gateway at {address}: {why}"
    step = "curl -v the address from a client; correct gateway.address of the inventory, or open the port"
    return warning("GATEWAY_CLOSED", node, problem, step)
