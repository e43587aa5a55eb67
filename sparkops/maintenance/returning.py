"""Return a node: check it, open it, and bring back what a drain has taken, one service after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparkops.deploy import sending
from sparkops.deploy.operation import Operation
from sparkops.deploy.plan import DeployOptions, Plan, nodes_of
from sparkops.doctor.run import diagnose
from sparkops.errors import Busy, ConnectionLost, Interrupted, PlanRefused, SparkopsError
from sparkops.guard_client.cordon import Cordon
from sparkops.guard_client.following import Accepted
from sparkops.guard_client.leader import Leader
from sparkops.guard_client.service_state import ServiceState
from sparkops.maintenance import drain
from sparkops.maintenance.drain import Follow, own_release
from sparkops.maintenance.plan import RETURN, Action, NodePlan, Step, after, home, leave, left, lifted
from sparkops.network.finding import Finding, problems
from sparkops.nodes.waiting import Waiting
from sparkops.smoke import decode_speed
from sparkops.swap.model import Deployment


def require_sound(operation: Operation, node: str) -> None:
    """Raise PlanRefused for problems that doctor finds on a node or on the links to its peers."""
    found = problems(diagnose(operation.connected, operation.report).diagnosis.findings)
    if own := [finding for finding in found if finding.node == node]:
        raise refused(node, own)


def refused(node: str, found: Sequence[Finding]) -> PlanRefused:
    """Return the refusal of a return: the node stays as it is."""
    lines = [f"{finding.code}: {finding.problem}" for finding in found]
    steps = [finding.next_step for finding in found if finding.next_step]
    steps.append(f"Return it all the same: sparkops node return {node} --force")
    return PlanRefused("\n".join([f"{node}: not returned", *lines]), next_step="\n".join(dict.fromkeys(steps)))


POLL_S = 0.5
REPORT_S = 15.0
"""Seconds for the leader to get a report of the opened node, which it asks every 1 to 2 s; then it may refuse."""


@dataclass(frozen=True)
class ReturnOptions:
    """The operator's options of a return."""

    leave: tuple[str, ...] = ()
    """Services that stay where they are: the drain has not taken them any more."""
    force: bool = False
    """Whether problems that doctor finds on the node, and a lower speed of what returns there, are accepted."""


def plan_return(operation: Operation, leader: Leader, node: str, cordon: Cordon, options: ReturnOptions) -> NodePlan:
    """Return the plan of a return: what a drain has taken goes back, unless it is left. Raises errors of nodes."""
    steps, refusals = list[Step](), dict[str, SparkopsError]()
    for service, displaced in cordon.displaced.items():
        state = _open(leader.state(service), node, cordon)
        try:
            step = left(state.journal, displaced) if service in options.leave else home(state, displaced)
            if step.action in (Action.MOVE, Action.START):
                ahead = [step.draft.plan for step in steps if step.draft]
                step = _planned(operation, state, displaced.deployment, node, step, ahead)
        except SparkopsError as error:
            refusals[service] = error
        else:
            steps.append(step)
    return NodePlan(node, RETURN, steps, refusals, [*_notes(node, cordon, options)])


def _notes(node: str, cordon: Cordon, options: ReturnOptions) -> Iterator[str]:
    """Yield what the options change. The reason of a cordon has both figures of a speed that was refused before."""
    yield from (f"{name} was not taken from {node}" for name in options.leave if name not in cordon.displaced)
    if options.force and cordon != Cordon():
        why = f", cordoned: {cordon.reason}" if cordon.reason else ""
        yield f"accepted: problems of {node}, and a lower speed of what returns there{why}"


def _open(state: ServiceState, node: str, cordon: Cordon) -> ServiceState:
    """Return a state as it is once the cordon has ended."""
    reports = {
        name: replace(report, lease="") if name == node and report.lease == cordon.text else report
        for name, report in state.reports.items()
    }
    return replace(state, reports=reports)


def _planned(
    operation: Operation, state: ServiceState, was: Deployment, node: str, step: Step, ahead: Sequence[Plan]
) -> Step:
    options = DeployOptions(nodes_of(was))
    release = own_release(was, state.journal.service)
    draft = sending.draft(operation, release, options, state, lambda observed: after(lifted(observed, node), ahead))
    return replace(step, draft=draft, effects=draft.effects)


def run(operation: Operation, leader: Leader, planned: NodePlan, follow: Follow, options: ReturnOptions) -> None:
    """Open the node and execute the plan. A service that fails its checks there closes the node again.

    What is left comes first: it needs nothing of the node. Raises the error of the first step that fails: the same
    command continues with it.
    """
    node = planned.node
    planned.require()
    for step in planned.steps:
        if step.draft:
            sending.check(operation, step.draft)
    cordon = drain.read_cordon(operation, node)
    drain.change_cordon(operation, node, partial(Cordon.opened, any_speed=options.force))
    _wait_for_report(operation, leader, planned, cordon.text)
    for step in sorted(planned.steps, key=lambda step: step.action is not Action.LEAVE):
        try:
            if accepted := _accepted(operation, leader, step):
                follow(step.service, accepted)
        except (Busy, Interrupted, ConnectionLost):  # the swap may go on: the next return follows it
            raise
        except SparkopsError as error:
            held = f"{cordon.reason or 'return'}; {step.service} did not return: {str(error).splitlines()[0]}"
            drain.change_cordon(operation, node, partial(Cordon.closed, reason=held))
            error.add_note(f"{node} is cordoned again; {step.service} stays where it is")
            steps = (error.next_step, *_ways_on(node, step.service, str(error)))
            error.next_step = "\n".join(filter(None, steps))
            raise
        drain.change_cordon(operation, node, partial(Cordon.restored, service=step.service))
        if step.action is not Action.LEAVE:
            drain.drop_elsewhere(operation, node, step.service)


def _wait_for_report(operation: Operation, leader: Leader, plan: NodePlan, text: str) -> None:
    """Wait until the leader's report of a node is newer than its cordon: until then it accepts nothing there."""
    moving = [step.service for step in plan.steps if step.changes and text]

    def closed() -> list[str]:
        reports = {service: leader.state(service).reports.get(plan.node) for service in moving}
        return [service for service, report in reports.items() if report and text in report.lease]

    Waiting(POLL_S, REPORT_S, operation.connected.cancel).poll(closed, lambda services: not services)


def _ways_on(node: str, service: str, problem: str) -> Iterator[str]:
    """Yield how to open a node to which a service did not return."""
    yield f"Once the cause is corrected: sparkops node return {node}"
    yield f"Or open {node} and leave {service} where it is: {leave(node, service)}"
    if decode_speed.SLOWER in problem:
        yield f"Or accept the new speed: sparkops node return {node} --force"


def _accepted(operation: Operation, leader: Leader, step: Step) -> Accepted | None:
    if step.draft:
        options = DeployOptions(tuple(rank.node for rank in step.draft.plan.ranks))
        return sending.deploy(operation, leader, step.draft.plan.release, options, step.draft)
    if step.action is Action.FOLLOW:
        return operation.until_free(partial(sending.in_progress, leader, step.service, operation.report))
    return None
