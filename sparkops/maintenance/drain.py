"""Drain a node: close it, and move or stop each service by an ordinary intent, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparkops.deploy import observe, sending
from sparkops.deploy.deployment import release_of
from sparkops.deploy.operation import Operation
from sparkops.deploy.plan import DeployOptions, Plan
from sparkops.errors import Busy, Interrupted, NotReady, PlanRefused, SparkopsError
from sparkops.guard_client import leases
from sparkops.guard_client.cordon import Cordon, Displaced
from sparkops.guard_client.following import Accepted
from sparkops.guard_client.leader import Leader, connect_guard
from sparkops.guard_client.service_state import ServiceState
from sparkops.maintenance.plan import (
    DRAIN,
    Action,
    NodePlan,
    Step,
    after,
    at_best,
    endpoint,
    on_node,
    refused_endpoint,
    remaining,
    strangers,
)
from sparkops.nodes.member import Member
from sparkops.nodes.progress import Event, Repeats
from sparkops.nodes.waiting import Waiting
from sparkops.release import Release
from sparkops.swap.model import Deployment

POLL_S = 2.0
END_S = 600.0
"""Seconds for engines to stop after the time for which they are kept warm, as a phase waits for an unknown state."""
Follow = Callable[[str, Accepted], None]
"""Follow an intent of a service to its end. Raises the error of an intent that failed."""


@dataclass(frozen=True)
class DrainOptions:
    """The operator's options of a drain. `to`: the nodes that services move to; empty: any."""

    to: tuple[str, ...] = ()
    stop: bool = False
    """Whether what no other node has room for is stopped."""
    allow_downtime: bool = False


def led(leader: Leader) -> list[ServiceState]:
    """Return the state of every service that the leader leads, and that was not forgotten."""
    states = (leader.state(service) for service in leader.services())
    return [state for state in states if state.journal.leader == leader.node.name and not state.journal.forgotten]


def plan_drain(operation: Operation, leader: Leader, node: str, options: DrainOptions) -> NodePlan:
    """Return the plan of a drain. Changes nothing.

    Raises PlanRefused for the gateway's node unless downtime is allowed, Busy, and errors of nodes.
    """
    states = led(leader)
    lost = sorted(state.journal.service for state in states if state.journal.active)
    at_gateway = operation.node == node
    if at_gateway and not options.allow_downtime:
        raise refused_endpoint(node, lost)
    steps, refused = list[Step](), dict[str, SparkopsError]()
    for state in sorted(states, key=_largest_first):
        service = state.journal.service
        ahead = [step.draft.plan for step in steps if step.draft]
        try:
            step = on_node(state, node)
            if step and step.action is Action.MOVE:
                step = _moved_or_stopped(operation, state, step, node, options, ahead)
        except SparkopsError as error:
            refused[service] = error
            continue
        if step:
            steps.append(step)
    for container in strangers(states, node, observe.containers(operation.connected.member(node))):
        problem = f"{container.name} runs on {node}, and no service of the leader has it"
        refused[container.service] = PlanRefused(problem, next_step=f"docker stop {container.name}, on {node}")
    notes = [endpoint(node, lost)] if at_gateway else []
    return NodePlan(node, DRAIN, steps, refused, notes, options.stop)


def _largest_first(state: ServiceState) -> tuple[float, str]:
    """Return the order of services: the largest find room first, and the smaller ones in what is left."""
    active = state.journal.active
    return -max((rank.claim_gib for rank in active.ranks), default=0.0) if active else 0.0, state.journal.service


def _elsewhere(operation: Operation, node: str, options: DrainOptions) -> DeployOptions:
    names = options.to or tuple(operation.connected.members)
    return DeployOptions(tuple(name for name in names if name != node), allow_downtime=options.allow_downtime)


def own_release(deployed: Deployment, service: str) -> Release:
    """Return the release of a deployment. Raises PlanRefused where another version has deployed it."""
    try:
        return release_of(deployed)
    except ValueError:
        step = f"sparkops deploy RECIPE --node NODE, or: sparkops stop {service}"
        problem = f"{service}: {deployed.release} was deployed by another version of sparkops"
        raise PlanRefused(problem, next_step=step) from None


def _moved_or_stopped(
    operation: Operation, state: ServiceState, step: Step, node: str, options: DrainOptions, ahead: Sequence[Plan]
) -> Step:
    """Return the move of a service, or its stop if that is wanted and no other node has room for it.

    Raises Busy, and PlanRefused also for what another node could run.
    """
    elsewhere = _elsewhere(operation, node, options)
    try:
        return _moved(operation, state, step, elsewhere, ahead)
    except PlanRefused as refusal:
        if not options.stop or not step.deployment:
            raise
        release = own_release(step.deployment, step.service)
        if not (unread := _unread(operation, node, options)) and not _has_room(
            operation, release, elsewhere, state, ahead
        ):
            return Step(step.service, Action.STOP, step.deployment, str(refusal).splitlines()[0].rstrip(":"))
        if not unread:
            raise
    problem = f"{step.service}: not stopped: {' and '.join(unread)} cannot be reached, and may have room for it"
    only = " ".join([f"sparkops node drain {node} --stop", *(f"--to {name}" for name in elsewhere.nodes)])
    raise PlanRefused(problem, next_step=f"sparkops doctor\nOr name the nodes that count: {only}")


def _unread(operation: Operation, node: str, options: DrainOptions) -> list[str]:
    """Return the nodes that a service may move to, and that cannot be reached."""
    names = options.to or tuple(operation.connected.fleet.nodes)
    return [name for name in names if name != node and name in operation.connected.unreachable]


def _has_room(
    operation: Operation, release: Release, options: DeployOptions, state: ServiceState, ahead: Sequence[Plan]
) -> bool:
    """Return whether a release would fit on other nodes once they have its image and weights. Raises Busy."""
    if not options.nodes:
        return False
    chosen = _preferring_own(release, options)
    chosen = replace(chosen, provided=frozenset(chosen.nodes))
    try:
        sending.deploy_plan(operation, release, chosen, state, lambda observed: after(at_best(observed), ahead))
    except PlanRefused:
        return False
    return True


def _preferring_own(release: Release, options: DeployOptions) -> DeployOptions:
    """Return the options with the recipe's own nodes, where it has enough of them."""
    own = tuple(name for name in release.recipe.nodes if name in options.nodes)
    return replace(options, nodes=own) if len(own) >= release.recipe.serve.tensor_parallel else options


def _moved(
    operation: Operation, state: ServiceState, step: Step, options: DeployOptions, ahead: Sequence[Plan]
) -> Step:
    """Return the move of a service, beside the engines that earlier moves start. Raises PlanRefused, Busy."""
    service = state.journal.service
    release = own_release(step.deployment, service) if step.deployment else None
    if release is None or not options.nodes:
        raise PlanRefused(f"{service}: no other node", next_step="sparkops doctor")
    draft = sending.draft(
        operation, release, _preferring_own(release, options), state, lambda observed: after(observed, ahead)
    )
    return replace(step, draft=draft, effects=draft.effects)


def run(
    operation: Operation, leader: Leader, planned: NodePlan, reason: str, options: DrainOptions, follow: Follow
) -> None:
    """Cordon the node and execute the plan. Raises the error of the first step that fails, and Busy.

    What was moved by then stays where it is, and the node stays cordoned: the same command continues.
    """
    node = planned.node
    planned.require()
    for step in planned.steps:
        if step.draft:
            sending.check(operation, step.draft)
    change_cordon(operation, node, partial(Cordon.closed, reason=reason))
    for step in planned.steps:
        if step.changes and step.deployment:
            displaced = Displaced(step.deployment, stopped=step.action is Action.STOP)
            change_cordon(operation, node, partial(Cordon.taken, service=step.service, displaced=displaced))
        if accepted := _accepted(operation, leader, step, node, options):
            follow(step.service, accepted)
    wait_until_empty(operation, leader, node)


def _accepted(operation: Operation, leader: Leader, step: Step, node: str, options: DrainOptions) -> Accepted | None:
    match step.action:
        case Action.MOVE if step.draft:
            chosen = _elsewhere(operation, node, options)
            return sending.deploy(operation, leader, step.draft.plan.release, chosen, step.draft)
        case Action.STOP:
            return operation.until_free(partial(sending.stop, leader, step.service))
        case Action.FOLLOW:
            return sending.in_progress(leader, step.service, operation.report)
        case _:
            return None


def wait_until_empty(operation: Operation, leader: Leader, node: str) -> None:
    """Wait until no engine of a service may run on a node: old releases stay warm for a while. Raises Busy."""

    def look() -> dict[str, str]:
        return remaining(led(leader), node)

    repeats = Repeats()

    def report(lefts: dict[str, str]) -> None:
        for left in lefts.values():
            operation.report(Event(node, left, lasting=repeats.keeps(left, time.monotonic())))

    warm = (state.journal.warm for state in led(leader))
    longest_s = max((old.limits.keep_old_s for old in warm if old), default=0.0)
    step = f"sparkops node drain {node} continues"
    stopped = Interrupted(f"{node}: not drained yet", next_step=step)
    waiting = Waiting(POLL_S, longest_s + END_S, operation.connected.cancel, interrupted=stopped)
    try:
        lefts = waiting.poll(look, lambda lefts: not lefts, report)
    except KeyboardInterrupt:
        raise stopped from None
    if lefts:
        raise Busy("\n".join(lefts.values()), next_step=step)


def read_cordon(operation: Operation, node: str) -> Cordon:
    """Return the cordon of a node. Raises NotReady where no guard keeps one, and errors of nodes."""
    member = operation.connected.member(node)
    if not leases.guarded(member):
        step = "docker start sparkops-guard, on the node; before its first deploy a node needs no cordon"
        raise NotReady(node, "no guard runs on it, which keeps the cordon", next_step=step)
    if (kept := leases.kept_cordon(member)) is None:
        step = "The next deploy replaces it: sparkops deploy RECIPE"
        raise NotReady(node, "its guard is of an earlier version, without cordons", next_step=step)
    return kept


def change_cordon(operation: Operation, node: str, make: Callable[[Cordon], Cordon]) -> Cordon:
    """Change the cordon of a node and return it. Raises Busy while a swap may still start an engine there.

    Raises what `read` raises, too.
    """

    def attempt() -> Cordon:
        was = read_cordon(operation, node)
        to = make(was)
        if to != was:
            with connect_guard(operation.connected.member(node)) as opened:
                opened.set_cordon(was, to)
        return to

    return operation.until_free(attempt)


def drop_elsewhere(operation: Operation, node: str, service: str) -> None:
    """Drop a service that is back on `node` from what drains have taken from other nodes: it was there only meanwhile.

    A node that cannot be read keeps it, and its return moves the service: that is reported.
    """

    def drop(member: Member) -> None:
        if member.name != node and service in leases.cordon_of(member).displaced:
            change_cordon(operation, member.name, partial(Cordon.restored, service=service))

    for name, outcome in operation.connected.on_each(drop).items():
        if isinstance(outcome, SparkopsError):
            operation.report(Event(name, f"may still have {service} as taken from it: {outcome}"))
