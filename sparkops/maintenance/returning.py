"""Return a node: check it, open it, and bring back what a drain has taken, one service after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sparkops.deploy import intents, sending
from sparkops.deploy.operation import Operation
from sparkops.deploy.plan import DeployOptions, Plan, nodes_of
from sparkops.deploy.sending import Draft
from sparkops.doctor.run import diagnose
from sparkops.errors import Busy, ConnectionLost, Interrupted, PlanRefused, SparkopsError
from sparkops.guard_client.cordon import Cordon
from sparkops.guard_client.following import Accepted
from sparkops.guard_client.leader import Leader
from sparkops.guard_client.service_state import ServiceState
from sparkops.maintenance import cordoning
from sparkops.maintenance.drain import Follow, Planned, own_release
from sparkops.maintenance.plan import RETURN, Action, NodePlan, Step, after, home, lifted
from sparkops.network.finding import Finding, problems
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


def plan_return(operation: Operation, leader: Leader, node: str, cordon: Cordon) -> Planned:
    """Return the plan of a return: every service that a drain has taken goes back. Raises errors of nodes."""
    steps, refusals, drafts = list[Step](), dict[str, SparkopsError](), dict[str, Draft]()
    for service, displaced in cordon.displaced.items():
        state = _open(leader.state(service), node, cordon)
        try:
            step = home(state, displaced)
            if step.action in (Action.MOVE, Action.START):
                ahead = [draft.plan for draft in drafts.values()]
                step, draft = _planned(operation, state, displaced.deployment, node, step, ahead)
                drafts |= {service: draft}
        except SparkopsError as error:
            refusals[service] = error
        else:
            steps.append(step)
    return Planned(NodePlan(node, RETURN, steps, refusals), drafts)


def _open(state: ServiceState, node: str, cordon: Cordon) -> ServiceState:
    """Return a state as it is once the cordon has ended."""
    reports = {
        name: replace(report, lease="") if name == node and report.lease == cordon.text else report
        for name, report in state.reports.items()
    }
    return replace(state, reports=reports)


def _planned(
    operation: Operation, state: ServiceState, was: Deployment, node: str, step: Step, ahead: Sequence[Plan]
) -> tuple[Step, Draft]:
    options = DeployOptions(nodes_of(was))
    release = own_release(was, state.journal.service)
    draft = sending.draft(operation, release, options, state, lambda observed: after(lifted(observed, node), ahead))
    return replace(step, plan=draft.plan, effects=draft.effects), draft


def run(operation: Operation, leader: Leader, planned: Planned, follow: Follow) -> None:
    """Open the node and execute the plan. A service that fails its checks there closes the node again.

    Raises the error of the first step that fails: the same command continues with it.
    """
    node = planned.plan.node
    planned.plan.require()
    for draft in planned.drafts.values():
        sending.check(operation, draft)
    reason = cordoning.read(operation, node).reason
    cordoning.change(operation, node, Cordon.opened)
    for step in planned.plan.steps:
        try:
            if accepted := _accepted(operation, leader, step, planned):
                follow(step.service, accepted)
        except (Busy, Interrupted, ConnectionLost):  # the swap may go on: the next return follows it
            raise
        except SparkopsError as error:
            held = f"{reason or 'return'}; {step.service} did not return: {str(error).splitlines()[0]}"
            cordoning.change(operation, node, partial(Cordon.closed, reason=held))
            error.add_note(f"{node} is cordoned again; {step.service} stays where it is")
            raise
        cordoning.change(operation, node, partial(Cordon.restored, service=step.service))


def _accepted(operation: Operation, leader: Leader, step: Step, planned: Planned) -> Accepted | None:
    match step.action:
        case Action.MOVE | Action.START:
            draft = planned.drafts[step.service]
            options = DeployOptions(tuple(rank.node for rank in draft.plan.ranks))
            return sending.deploy(operation, leader, draft.plan.release, options, draft)
        case Action.FOLLOW:
            return operation.until_free(partial(intents.in_progress, leader, step.service, operation.report))
        case _:
            return None
