"""Drain a node and return to it: a list of ordinary deploys and stops, which prints itself and is sent one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

from sparkops.command import quote
from sparkops.config.release import Release
from sparkops.errors import Busy, PlanRefused, further
from sparkops.node.cordon import Cordon
from sparkops.node.progress import Event, Repeats
from sparkops.node.waiting import Waiting
from sparkops.operator.deploy import preview, sending
from sparkops.operator.deploy.deployment import kept_release
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.plan import DeployOptions, nodes_of
from sparkops.operator.deploy.preconditions import Observed, current
from sparkops.operator.deploy.preview import Draft
from sparkops.operator.deploy.sending import Foreseen
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.guards.following import Accepted
from sparkops.operator.fleet.guards.leader import Leader, connect_guard
from sparkops.serving import service_state
from sparkops.serving.service_state import ServiceState
from sparkops.swap import trouble
from sparkops.swap.model import Deployment

POLL_S = 2.0
END_S = 600.0
"""Seconds for engines to stop."""
REPORT_S = 15.0
"""Seconds for the leader to get a report of the opened node, which it asks every 1 to 2 s; until then it refuses."""
Follow = Callable[[str, Accepted], None]
"""Follow an intent of a service to its end. Raises the error of an intent that failed."""


class Action(StrEnum):
    """What a drain or a return does with a service."""

    MOVE = "move"
    """Deploy its release on other nodes."""
    STOP = "stop"
    """Stop it until the node returns."""
    START = "start"
    """Deploy a release that the drain has stopped."""
    END_WARM = "stop the old release"
    """Stop a release that is only kept warm, before its time."""
    LEAVE = "leave"
    """Change nothing."""


@dataclass(frozen=True)
class Step:
    """What happens to one service. `note`: why, where the action alone does not state it."""

    service: str
    action: Action
    deployment: Deployment | None = None
    """The release on its present nodes, or of a return on those that it returns to."""
    note: str = ""
    release: Release | None = None
    """What is deployed; None for a stop."""
    options: DeployOptions = field(default_factory=DeployOptions)
    draft: Draft | None = None
    """The plan of the deploy; None where it joins a swap in progress."""
    keeps: bool = False
    """Whether the cordon keeps the deployment, so that a return brings it back."""

    def lines(self) -> Iterator[str]:
        where = f" to {' and '.join(self.options.nodes)}" if self.release else ""
        yield f"{self.service}: {self.action}{where}" + (f": {self.note}" if self.note else "")
        if self.draft:
            yield from (f"  {line}" for line in str(self.draft.plan).splitlines())
        if self.draft and (effects := self.draft.effects):
            yield from (f"  {line}" for line in preview.lines(effects, self.service))

    def as_json(self) -> dict[str, object]:
        """Return the object of `--json`."""
        effects = self.draft.effects if self.draft else None
        return {
            "service": self.service,
            "action": self.action.value,
            "release": self.deployment.release if self.deployment else None,
            "nodes": list(nodes_of(self.deployment)) if self.deployment else [],
            "to": list(self.options.nodes) if self.release else [],
            "mode": self.draft.plan.mode.value if self.draft else None,
            "note": self.note or None,
            "effects": preview.as_json(effects, self.service) if effects else [],
        }

    def send(self, operation: Operation, leader: Leader) -> Accepted | None:
        """Send the deploy or the stop as the verb of this name does; None where nothing is to follow."""
        if self.action is Action.END_WARM:
            sending.end_warm(leader, self.service)
            return None
        if self.release:
            return sending.deploy(operation, leader, self.release, self.options)
        if self.action is Action.STOP:
            return operation.until_free(partial(sending.stop, leader, self.service))
        return None


@dataclass(frozen=True)
class NodePlan:
    """The drain or the return of a node."""

    node: str
    verb: str
    steps: Sequence[Step] = ()
    reason: str = ""
    """That of the cordon, of a drain."""
    command: str = ""
    """The command that continues it."""

    def __str__(self) -> str:
        head = f"{self.node}: {self.verb}" + (f" ({self.reason})" if self.reason else "")
        lines = [f"  {line}" for step in self.steps for line in step.lines()]
        return "\n".join([head + ("" if self.steps else ": no service"), *lines])

    def as_json(self) -> dict[str, object]:
        """Return the object of `--json`."""
        services = [step.as_json() for step in self.steps]
        return {"node": self.node, "verb": self.verb, "reason": self.reason or None, "services": services}


@dataclass(frozen=True)
class DrainOptions:
    """The operator's options of a drain. `to`: the nodes that services move to; empty: any."""

    to: tuple[str, ...] = ()
    stop: bool = False
    """Whether what cannot move is stopped."""
    allow_downtime: bool = False
    reason: str = ""
    """Shown where a deploy to the cordoned node is refused."""

    def command(self, node: str) -> str:
        """Return the command that drains a node with these options, without the reason: the cordon has it."""
        given = [*(word for name in self.to for word in ("--to", name)), *(["--stop"] if self.stop else [])]
        given += ["--allow-downtime"] if self.allow_downtime else []
        return quote("sparkops", "node", "drain", node, *given)


def plan_drain(operation: Operation, leader: Leader, node: str, options: DrainOptions) -> NodePlan:
    """Return the plan of a drain. Changes nothing.

    Raises PlanRefused for a service that cannot move, and for the gateway's node unless downtime is allowed; Busy, and
    errors of nodes.
    """
    states = sorted(_led(leader), key=_largest_first)
    if operation.node == node and not options.allow_downtime:
        others = [name for name in operation.connected.members if name != node]
        serving = [state.journal for state in states if state.journal.active]
        here = any(active is not None and _is_on(active, node) for active in (journal.active for journal in serving))
        raise _refused_gateway(node, others, [journal.service for journal in serving], here=here)
    cordons = operation.connected.on_each(leases.cordon_of)
    guests = {
        service
        for name, cordon in cordons.items()
        if name != node and isinstance(cordon, Cordon)
        for service in cordon.displaced
    }
    steps = list[Step]()
    for state in states:
        if step := _away(operation, state, node, options, steps):
            moves_on = step.action is Action.MOVE and step.service in guests  # its own node has it in its cordon
            steps.append(replace(step, keeps=step.keeps and not moves_on))
    return NodePlan(node, "drain", steps, options.reason, options.command(node))


def _led(leader: Leader) -> list[ServiceState]:
    """Return the state of every service that the leader leads, and that was not forgotten."""
    states = (leader.state(service) for service in leader.services())
    return [state for state in states if state.journal.leader == leader.node.name and not state.journal.forgotten]


def _largest_first(state: ServiceState) -> tuple[float, str]:
    """Return the order of services: the largest find room first, and the smaller ones in what is left."""
    active = state.journal.active
    return -max((rank.claim_gib for rank in active.ranks), default=0.0) if active else 0.0, state.journal.service


def _refused_gateway(node: str, others: Sequence[str], services: Sequence[str], *, here: bool) -> PlanRefused:
    """Return the refusal of a drain of the gateway's node, with what its loss costs.

    `here`: whether an engine runs there, which a gateway elsewhere would not reach: then the engines move first.
    """
    count = f"{len(services)} service{'' if len(services) == 1 else 's'}"
    named = f"{count} ({', '.join(sorted(services))})" if services else count
    problem = f"{node} has the gateway: while it is down, clients reach 0 of {named}, and nothing can be changed"
    order = "Then move the gateway" if here else "Move the gateway first"
    move = [f"{order}: {trouble.MOVE} {others[0]}"] if others else []
    engines = f"{'Move the engines, and nothing else' if here else 'Accept that'}: "
    accept = [f"{engines}sparkops node drain {node} --allow-downtime"]
    return PlanRefused(problem, next_step="\n".join((*accept, *move) if here else (*move, *accept)))


def _away(
    operation: Operation, state: ServiceState, node: str, options: DrainOptions, ahead: Sequence[Step]
) -> Step | None:
    """Return what a drain does with a service; None where nothing of it runs on the node but what is about to stop.

    Raises PlanRefused, and Busy while a swap to the node, or back to it, is in progress.
    """
    journal, swap = state.journal, state.swap
    service, active = journal.service, journal.active
    if not any(_is_on(item, node) for item in journal.deployments):
        return None
    if journal.stopping:
        return Step(service, Action.STOP, active, "it is being stopped")
    if swap and not swap.reverting and not _is_on(swap.target, node):
        note, chosen = f"the swap in phase '{swap.phase}'", DeployOptions(nodes_of(swap.target))
        return Step(service, Action.MOVE, active, note, kept_release(swap.target, service), chosen)
    if swap:
        current(state)
    if active is None or not _is_on(active, node):
        note = "it is only kept warm"
        return Step(service, Action.END_WARM, journal.warm, note) if _is_warm(state, node) else None
    release = kept_release(active, service)
    step = Step(service, Action.MOVE, active, release=release, keeps=True)
    try:
        where, downtime = _elsewhere(operation, release, node, options), options.allow_downtime
        count = len(active.replicas)
        chosen = DeployOptions(where, allow_downtime=downtime, verb="node drain", replicas=count)
        try:
            return _planned(operation, state, step, chosen, ahead)
        except PlanRefused:
            if count == 1:
                raise
        return _planned(operation, state, step, replace(chosen, replicas=count - 1), ahead)  # the others serve
    except PlanRefused as refusal:
        if options.stop:
            return Step(service, Action.STOP, active, str(refusal).splitlines()[0].rstrip(":"), keeps=True)
        way = f"Or stop what cannot move until {node} returns: sparkops node drain {node} --stop"
        refusal.next_step = refusal.steps(way)
        raise


def _is_warm(state: ServiceState, node: str) -> bool:
    """Return whether a node keeps a release warm that has no traffic any more."""
    warm = state.journal.warm
    return warm is not None and _is_on(warm, node)


def _is_on(deployment: Deployment, node: str) -> bool:
    return node in nodes_of(deployment)


def _elsewhere(operation: Operation, release: Release, node: str, options: DrainOptions) -> tuple[str, ...]:
    """Return the nodes that a service may move to: the recipe's own, where it has enough of them.

    Raises PlanRefused where there is none.
    """
    names = [name for name in options.to or operation.connected.members if name != node]
    if not names:
        raise PlanRefused(f"{release.service}: no other node", next_step="sparkops doctor")
    own = [name for name in release.recipe.nodes if name in names]
    return tuple(own if len(own) >= release.recipe.serve.ranks else names)


def _planned(
    operation: Operation,
    state: ServiceState,
    step: Step,
    options: DeployOptions,
    ahead: Sequence[Step],
    foreseen: Foreseen = lambda observed: observed,
) -> Step:
    """Return a step with the plan of its deploy, in the memory that the steps `ahead` leave.

    Raises PlanRefused, Busy and errors of nodes.
    """
    if step.release is None:
        return step
    starts = (rank for earlier in ahead if earlier.draft for rank in earlier.draft.intent.target.ranks)
    expected = replace(state, promoted=(*state.promoted, *starts))
    draft = sending.draft(operation, step.release, options, expected, foreseen)
    preview.accepted(expected, draft.intent)
    return replace(step, draft=draft, options=replace(options, nodes=nodes_of(draft.intent.target)))


def plan_return(operation: Operation, leader: Leader, node: str, cordon: Cordon) -> NodePlan:
    """Return the plan of a return: what a drain has taken goes back. Raises PlanRefused, Busy and errors of nodes."""
    steps = list[Step]()
    for service, was in cordon.displaced.items():
        with further(f"Or open {node} and leave its services where they are: sparkops node uncordon {node}"):
            steps.append(_back(operation, _opened(leader.state(service), node, cordon), was, node, steps))
    return NodePlan(node, "return", steps, command=quote("sparkops", "node", "return", node))


def _opened(state: ServiceState, node: str, cordon: Cordon) -> ServiceState:
    """Return a state as it is once the cordon of a node has ended."""
    report = state.reports.get(node)
    ends = report is not None and report.lease == cordon.text
    return replace(state, reports={**state.reports, node: replace(report, lease="")}) if report and ends else state


def _back(operation: Operation, state: ServiceState, was: Deployment, node: str, ahead: Sequence[Step]) -> Step:
    """Return what a return does with a service that a drain has taken. Raises PlanRefused, Busy and errors of nodes.

    It brings back the release that the drain took, to its nodes. What an operator has done since stays as it is.
    """
    service, active = state.journal.service, state.journal.active
    leave = Step(service, Action.LEAVE, was)
    if active is None and state.journal.previous != was:
        return replace(leave, note="it was stopped since")
    if active and active.release != was.release:
        on = " and ".join(nodes_of(active))
        return replace(leave, note=f"{active.release} was deployed on {on} since; it stays there")
    if service_state.serves(state, was.release, nodes_of(was)):
        return replace(leave, note=f"it serves on {' and '.join(nodes_of(was))}")
    action, options = (
        Action.MOVE if active else Action.START,
        DeployOptions(nodes_of(was), verb="node return", replicas=len(was.replicas)),
    )
    step = Step(service, action, was, release=kept_release(was, service), options=options)
    if state.swap and service_state.joins(state, was.release, options.nodes):
        return replace(step, note=f"the swap in phase '{state.swap.phase}'")

    def foreseen(observed: dict[str, Observed]) -> dict[str, Observed]:
        return {name: replace(item, cordon="") if name == node else item for name, item in observed.items()}

    return _planned(operation, state, step, options, ahead, foreseen)


def drain(operation: Operation, leader: Leader, planned: NodePlan, follow: Follow) -> None:
    """Cordon the node, send the steps, and wait until no engine runs on it. Raises the error of the first that fails.

    What was moved by then stays where it is, and the node stays cordoned: the same command continues.
    """
    node = planned.node
    change_cordon(operation, node, partial(Cordon.closed, reason=planned.reason))
    with further(f"{planned.command} continues"):
        for step in planned.steps:
            if step.keeps and step.deployment:
                kept = partial(Cordon.taken, service=step.service, deployment=step.deployment)
                change_cordon(operation, node, kept)
            if accepted := step.send(operation, leader):
                follow(step.service, accepted)
        for state in _led(leader):
            if _is_warm(state, node):  # also what the steps have moved away
                sending.end_warm(leader, state.journal.service)
        _wait_until_empty(operation, leader, node)


def bring_back(operation: Operation, leader: Leader, planned: NodePlan, follow: Follow) -> None:
    """Open the node and send the steps. Raises the error of the first that fails: the same command continues.

    Until the leader has a report of the opened node it refuses what starts there.
    """
    node = planned.node
    change_cordon(operation, node, Cordon.opened)
    patient = replace(operation, wait_s=max(operation.wait_s, REPORT_S))
    with further(f"{planned.command} continues"):
        for step in planned.steps:
            if accepted := step.send(patient, leader):
                follow(step.service, accepted)
            change_cordon(operation, node, partial(Cordon.restored, service=step.service))


def _wait_until_empty(operation: Operation, leader: Leader, node: str) -> None:
    """Wait until no engine of a service may run on a node. Raises Busy."""

    def look() -> str:
        journals = [state.journal for state in _led(leader)]
        known = [rank for journal in journals for item in journal.deployments for rank in item.ranks]
        known += [rank for journal in journals for rank in journal.stopped]
        return " and ".join(dict.fromkeys(rank.container for rank in known if rank.node == node))

    repeats = Repeats()

    def report(left: str) -> None:
        text = f"waiting until {left} stops"
        operation.report(Event(node, text, lasting=repeats.keeps(text, time.monotonic())))

    waiting = Waiting(POLL_S, END_S, operation.connected.cancel)
    if left := waiting.poll(look, lambda left: not left, report):
        raise Busy(f"{node}: {left} has not stopped", next_step="sparkops status")


def change_cordon(operation: Operation, node: str, make: Callable[[Cordon], Cordon]) -> Cordon:
    """Change the cordon of a node and return it. Raises Busy while a swap may still start an engine there.

    Raises NotReady where no guard keeps one, and errors of nodes.
    """

    def attempt() -> Cordon:
        was = leases.require_cordon(operation.connected.member(node))
        to = make(was)
        if to != was:
            with connect_guard(operation.connected.member(node)) as opened:
                opened.set_cordon(was, to)
        return to

    return operation.until_free(attempt)
