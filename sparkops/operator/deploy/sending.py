"""Make the intents of the verbs from what the nodes and the leader report, and send them.

Deploy, restart and rollback need a plan. Promote, cancel, stop, forget and hold do not, and are made again where a swap
changes the journal meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from sparkops.config.release import Rank, Release
from sparkops.errors import Busy, NeedsOperator, PlanRefused, SparkopsError, UsageError
from sparkops.node import host
from sparkops.node.agents.commands import CONTAINER
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.deploy import comparing, leads, node_checks, observe, preview, returning
from sparkops.operator.deploy.deployment import deployment, kept_release, new_id, release_of, token_ranks
from sparkops.operator.deploy.difference import Change, Difference, difference
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.plan import DeployOptions, Plan, nodes_of, plan
from sparkops.operator.deploy.preconditions import Observed, current
from sparkops.operator.deploy.preview import Draft
from sparkops.operator.deploy.returning import Return, Way
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.guards.ending import swap_line
from sparkops.operator.fleet.guards.following import Accepted
from sparkops.operator.fleet.guards.leader import Leader, connect_guard
from sparkops.operator.fleet.guards.replies import Record, merge
from sparkops.serving import engine_spec, service_state
from sparkops.serving.service_state import ServiceState
from sparkops.serving.startup import estimate
from sparkops.swap import trouble
from sparkops.swap.intents import CHANGED, Cancel, Deploy, EndWarm, Forget, Hold, Intent, Promote, Stop, changing
from sparkops.swap.journal import ROLLBACK, Journal, present
from sparkops.swap.model import Deployment, Mode
from sparkops.swap.plan import EffectPlan

CHANGED_TRIES = 5
"""Tries of an intent: a swap changes the journal at each phase."""


Foreseen = Callable[[dict[str, Observed]], dict[str, Observed]]
"""The nodes as they will be when the deploy begins, from what they are now."""


def draft(
    operation: Operation,
    release: Release,
    options: DeployOptions,
    state: ServiceState,
    foreseen: Foreseen = lambda observed: observed,
) -> Draft:
    """Plan the deploy of a release on the journal of `state`. Raises PlanRefused, Busy and errors of nodes."""
    connected = operation.connected
    chosen = _closed(operation, deploy_plan(operation, release, options, state, foreseen))
    addresses = {rank.node: connected.fleet.engine_address(rank.node) for rank in chosen.ranks}
    token, gap = secrets.token_hex(32), chosen.current.gap
    digest = engine_spec.token_digest(token.encode())
    target = _kept_warm(state.journal.warm, deployment(chosen, addresses, digest, gap.took_s if gap else 0.0))
    revision, automatic = state.journal.revision, options.promote
    intent = Deploy(new_id(), revision, target, chosen.mode, automatic, options.without, options.verb)
    return Draft(chosen, state, intent, token)


def _kept_warm(warm: Deployment | None, target: Deployment) -> Deployment:
    """Return the target; where the same release is kept warm in its place, as it runs.

    Its engines need no second start, though one planned now might get other limits of compilers and memory.
    """
    if warm is None or (warm.release, warm.slot) != (target.release, target.slot):
        return target
    here = [rank.place for rank in warm.ranks] == [rank.place for rank in target.ranks]
    return replace(warm, limits=target.limits) if here else target


def deploy_plan(
    operation: Operation,
    release: Release,
    options: DeployOptions,
    state: ServiceState,
    foreseen: Foreseen = lambda observed: observed,
) -> Plan:
    """Return the plan of a deploy from what the nodes report. Raises PlanRefused, Busy and errors of nodes."""
    replaced = current(state, options.without)
    observed = foreseen(observe.before_deploy(operation.connected, release))
    if replaced.source:  # in another mode too: a later rollback may start this release in place
        replaced = replace(replaced, gap=_gap(operation, release, nodes_of(replaced.source)[0]))
    return plan(release, observed, replaced, options, operation.connected.fleet.fabric)


def _gap(operation: Operation, release: Release, node: str) -> estimate.Forecast | None:
    """Return the predicted start on a node, from past starts there or the recipe's own figure."""
    expected = release.recipe.expected.cold_start_s if release.recipe.expected else None
    past = estimate.remembered(_past_starts(operation, release.service, node))
    return estimate.forecast(release.id, estimate.kind(release.recipe, release.inputs), expected, past, node)


def _past_starts(operation: Operation, service: str, node: str) -> list[dict[str, Any]]:
    """Return the past starts of a service on a node; none where they cannot be read: then no request waits."""
    if node not in operation.connected.members:
        return []
    try:
        with connect_guard(operation.connected.member(node)) as opened:
            return opened.starts(service)
    except SparkopsError as error:
        operation.report(Event(node, f"past starts not read: {error}"))
        return []


def _closed(operation: Operation, plan: Plan) -> Plan:
    """Return the plan with the HTTP port of the new release open to the gateway only."""
    heads = {replica[0].node for replica in plan.replicas}
    addresses: tuple[str, ...] = ()
    if heads - {operation.node}:
        node = operation.connected.member(operation.node).node
        addresses = host.parse_addresses(node.run(host.ADDRESSES).stdout)

    def closed(rank: Rank) -> Rank:
        return replace(rank, callers=() if rank.node == operation.node else addresses) if rank.index == 0 else rank

    return replace(plan, ranks=tuple(map(closed, plan.ranks)))


def dry_run(operation: Operation, leader: Leader, release: Release, options: DeployOptions) -> Draft | None:
    """Plan a deploy and send nothing; None where the release serves already, on the nodes that were named."""

    def planned() -> Draft | None:
        state = _known(operation, leader, release.service)
        return None if _serves(state, release, options) else draft(operation, release, options, state)

    return operation.until_free(planned)


def foresee(operation: Operation, leader: Leader, release: Release, options: DeployOptions) -> Plan | None:
    """Plan a deploy before its image and weights are on the nodes that `options.provided` names.

    None where the release serves or a swap to it is in progress. Changes nothing. Raises Busy, PlanRefused and errors
    of nodes.
    """

    def planned() -> Plan | None:
        state, nodes = _known(operation, leader, release.service), _named(release, options)
        if service_state.joins(state, release.id, nodes) or _serves(state, release, options):
            return None
        return deploy_plan(operation, release, options, state)

    return operation.until_free(planned)


def _named(release: Release, options: DeployOptions) -> tuple[str, ...]:
    """Return the nodes that a deploy names; none where any will do. A release that serves on others moves there."""
    return options.nodes or tuple(release.recipe.nodes)


def _serves(state: ServiceState, release: Release, options: DeployOptions) -> bool:
    """Return whether a deploy has nothing to do."""
    return service_state.serves(state, release.id, _named(release, options), options.wanted(release))


def _known(operation: Operation, leader: Leader, service: str) -> ServiceState:
    return leads.known(operation.connected, leader, service)


def prepare(operation: Operation, leader: Leader, release: Release, options: DeployOptions) -> Draft | None:
    """Plan a deploy that the leader would accept; None where the release serves or a swap to it is in progress.

    Changes nothing. Raises Busy, PlanRefused and NotReady as `deploy` does.
    """

    def attempt() -> Draft | None:
        state = _known(operation, leader, release.service)
        nodes = _named(release, options)
        if service_state.joins(state, release.id, nodes) or _serves(state, release, options):
            return None
        planned = draft(operation, release, options, state)
        preview.accepted(state, planned.intent)
        check(operation, planned)
        return planned

    return operation.until_free(attempt)


def difference_of(state: ServiceState | None, release: Release) -> Difference | None:
    """Return what a deploy changes in what serves; None where nothing serves, or a release of another version."""
    active = state.journal.active if state else None
    return _compared(active, release) if active and active.release != release.id else None


def untaken(state: ServiceState | None, release: Release) -> tuple[Change, ...]:
    """Return what differs in the recipe of the release that serves: settings of swaps and checks make no other release.

    A deploy of another release takes them. Nothing where this release does not serve, or one of another version does.
    """
    active = state.journal.active if state else None
    found = _compared(active, release) if active and active.release == release.id else None
    return found.changes if found else ()


def _compared(active: Deployment, release: Release) -> Difference | None:
    """Return the difference of a release from the active one; None for one of another version of sparkops."""
    try:
        return difference(release_of(active), release)
    except ValueError:
        return None


def check(operation: Operation, draft: Draft) -> None:
    """Try what only the nodes can show: the network of several ranks, and the memory of an in-place swap."""
    node_checks.require_network(operation.connected, draft.plan, operation.report)
    if draft.plan.mode.stops_source:
        active = draft.state.journal.active
        node_checks.require_memory(operation.connected, draft.intent.target, active, operation.report)


def deploy(
    operation: Operation, leader: Leader, release: Release, options: DeployOptions, planned: Draft | None = None
) -> Accepted | None:
    """Send the intent to deploy a release; None where it serves already. A swap to it that is in progress is joined.

    `planned`, from `prepare`, is sent if it still holds.
    """
    return operation.until_free(lambda: _deploy(operation, leader, release, options, planned))


def _deploy(
    operation: Operation, leader: Leader, release: Release, options: DeployOptions, planned: Draft | None = None
) -> Accepted | None:
    """Send the intent, planned again where the service changes between the plan and the leader's reply."""
    for _ in range(CHANGED_TRIES - 1):
        state = leader.state(release.service)
        try:
            return _planned_on(state, operation, leader, release, options, planned)
        except Busy:
            if leader.state(release.service).journal.revision == state.journal.revision:
                raise
    return _planned_on(leader.state(release.service), operation, leader, release, options, planned)


def _planned_on(
    state: ServiceState,
    operation: Operation,
    leader: Leader,
    release: Release,
    options: DeployOptions,
    planned: Draft | None,
) -> Accepted | None:
    nodes = _named(release, options)
    if state.swap and not options.anew and service_state.joins(state, release.id, nodes):
        operation.report(Event(operation.node, f"joining the {release.service} swap in phase '{state.swap.phase}'"))
        return Accepted(state.swap.intent, state.last)
    if not options.anew and _serves(state, release, options):
        return None
    if planned:
        _require_unchanged(planned.state.journal, state.journal)
    current_draft = planned if planned and planned.holds(state) else draft(operation, release, options, state)
    if planned is None or current_draft.intent.target != planned.intent.target:
        check(operation, current_draft)
    _give_token(operation, release.service, current_draft)
    if options.verb != ROLLBACK:
        comparing.give_baseline(operation, release.recipe, state.journal.active, current_draft.intent)
    return sent(leader, state, current_draft.intent)


def _require_unchanged(planned: Journal, now: Journal) -> None:
    """Raise PlanRefused where another operator has stopped, forgotten or replaced what a deploy was checked against."""
    if (planned.active, planned.forgotten) == (now.active, now.forgotten):
        return
    is_now = f"{now.active.release} serves" if now.active else "it was stopped"
    problem = f"{now.service}: {is_now} since this deploy was planned; nothing was changed"
    raise PlanRefused(problem, next_step=f"sparkops history {now.service}; then deploy again, if it is still right")


def _give_token(operation: Operation, service: str, draft: Draft) -> None:
    target, digest = draft.intent.target, engine_spec.token_digest(draft.token.encode())
    name = engine_spec.token_name(target.release, target.slot, digest)

    def give(member: Member) -> None:
        with connect_guard(member) as opened:
            opened.give_secret(service, name, draft.token)

    operation.connected.only([rank.node for rank in token_ranks(target, digest)]).all(give)


def rollback(
    operation: Operation, leader: Leader, service: str, options: DeployOptions, to: str = ""
) -> Accepted | None:
    """End an unfinished swap, or return to the release `to` or the previous one; None where there is nothing to do.

    Reports what it returns to before it sends anything. Raises as `returning.back` and `deploy` do.
    """
    named = replace(options, verb=ROLLBACK)
    return operation.until_free(lambda: _rollback(operation, leader, service, named, to))


def _rollback(operation: Operation, leader: Leader, service: str, options: DeployOptions, to: str) -> Accepted | None:
    for _ in range(CHANGED_TRIES):
        state = leader.state(service)
        planned = returning.back(state, to)
        if planned is None:
            return None
        operation.report(Event(operation.node, str(planned)))
        if planned.way is Way.JOIN and state.swap:
            return Accepted(state.swap.intent, state.last)
        if planned.way is not Way.END:
            return _return_to(operation, leader, state, planned, options)
        if accepted := cancel(leader, service):
            return accepted
        if leader.state(service).journal.active == planned.to:  # the swap has ended meanwhile, by itself
            return None
    raise Busy(f"{service}: {CHANGED}", next_step=f"sparkops status {service}")


def _return_to(
    operation: Operation, leader: Leader, state: ServiceState, planned: Return, options: DeployOptions
) -> Accepted | None:
    release = present(planned.to)
    if planned.way is Way.SWITCH:
        return sent(leader, state, _return_to_warm(state.journal, release, options))
    return _deploy(operation, leader, *_again(state.journal.service, release, options))


def _again(service: str, deployed: Deployment, options: DeployOptions) -> tuple[Release, DeployOptions]:
    """Return the release of a deployment, and the options of its deploy where it ran. Raises PlanRefused."""
    nodes = options.nodes or tuple(node for node in nodes_of(deployed) if node not in options.without)
    left = sum(replica.nodes.isdisjoint(options.without) for replica in deployed.replicas)
    return kept_release(deployed, service), replace(options, nodes=nodes, replicas=options.replicas or left or 1)


def _return_to_warm(journal: Journal, warm: Deployment, options: DeployOptions) -> Deploy:
    """Return the intent of a return to a warm release, whose healthy engines are only checked before the switch."""
    serving = nodes_of(journal.active) if journal.active else ()
    mode = Mode.BESIDE if {*serving} & {*nodes_of(warm)} else Mode.ACROSS
    return Deploy(new_id(), journal.revision, warm, mode, without=options.without, verb=options.verb)


def preview_rollback(
    operation: Operation, leader: Leader, service: str, options: DeployOptions, to: str = ""
) -> tuple[Return, EffectPlan | None] | None:
    """Return what `rollback` would do, with the effects of a deploy or switch. Sends nothing; raises as it does."""

    def planned() -> tuple[Return, EffectPlan | None] | None:
        state = leader.state(service)
        way = returning.back(state, to)
        if way is None or way.to is None or way.way in (Way.END, Way.JOIN):
            return (way, None) if way else None
        if way.way is Way.SWITCH:
            return way, preview.preview(state, _return_to_warm(state.journal, way.to, options))
        release, chosen = _again(service, way.to, options)
        return way, draft(operation, release, chosen, state).effects

    return operation.until_free(planned)


def restart(operation: Operation, leader: Leader, service: str, options: DeployOptions) -> Accepted | None:
    """Start the release of a stopped service, or the active one anew, by a swap to it on its nodes.

    Raises UsageError where there is none, and as `deploy` does.
    """

    def attempt() -> Accepted | None:
        state = leader.state(service)
        if state.swap:
            raise Busy(why := changing(state.journal), next_step=service_state.free_step(service, why))
        release = state.journal.active or state.journal.previous
        if release is None:
            raise UsageError(f"{service}: no release to start", next_step="sparkops deploy RECIPE")
        again = replace(options, verb="restart", anew=True)
        return _deploy(operation, leader, *_again(service, release, again))

    return operation.until_free(attempt)


def sent(leader: Leader, state: ServiceState, intent: Intent, follows: str | None = None) -> Accepted | None:
    """Send an intent: None where the leader finds nothing to do. Raises Busy or PlanRefused."""
    decision = leader.intend(state.journal.service, replace(intent, by=leases.operator()))
    decision.require(state.journal.service)
    swap_intent = intent.id if follows is None else follows
    return Accepted(swap_intent, state.last, state.journal.trouble) if decision.accepted else None


def cancel(leader: Leader, service: str) -> Accepted | None:
    """Let an unfinished swap return to the old release; None without one. Raises Busy or PlanRefused."""
    return unplanned(leader, service, lambda journal: Cancel(new_id(), journal.revision))


def promote(leader: Leader, service: str) -> Accepted | None:
    """Keep a release that waits for promotion; None without one. Raises Busy or PlanRefused."""
    return unplanned(leader, service, lambda journal: Promote(new_id(), journal.revision))


def stop(leader: Leader, service: str, *, force: bool = False) -> Accepted | None:
    """Stop a service: traffic first, then requests in progress, then engines. Joins a stop in progress.

    `force`: also in the middle of a swap. Raises Busy or PlanRefused.
    """
    state = leader.state(service)
    if state.journal.stopping or state.journal.halting:
        return Accepted("", state.last)
    try:
        accepted = _changed(leader, state, lambda journal: Stop(new_id(), journal.revision, force=force))
    except Busy as busy:
        if not force and leader.state(service).swap:
            busy.next_step = f"sparkops rollback {service}, which ends it\nsparkops stop {service} --force"
        raise
    return replace(accepted, intent="") if accepted else None


def end_warm(leader: Leader, service: str) -> None:
    """Stop the old release that is only kept warm, if there is one. Raises Busy or PlanRefused."""
    unplanned(leader, service, lambda journal: EndWarm(new_id(), journal.revision))


def forget(leader: Leader, service: str) -> Accepted | None:
    """Give up a stopped service: its names and port at the gateway are free. Raises Busy or PlanRefused."""
    return unplanned(leader, service, lambda journal: Forget(new_id(), journal.revision))


def in_progress(leader: Leader, service: str, report: OnEvent) -> Accepted | None:
    """Return the swap or stop in progress, and report what it is; None without one."""
    state = leader.state(service)
    if state.journal.stopping or state.journal.halting:
        return Accepted("", state.last)
    if state.swap:
        waits = f"; it waits for `sparkops promote {service}`" if state.swap.waits else ""
        report(Event(service, f"{swap_line(state.swap)}{waits}"))
        return Accepted(state.swap.intent, state.last)
    if state.needs_operator:
        step = trouble.next_step(state.journal, state.needs_operator, state.missing)
        raise NeedsOperator(f"{service}: {trouble.reason(state.needs_operator)}", next_step=step)
    return None


def hold(leader: Leader, service: str, reason: str) -> bool:
    """Block changes of a service; an empty reason ends that. Returns whether that changes anything.

    Raises Busy or PlanRefused.
    """
    return None is not unplanned(leader, service, lambda journal: Hold(new_id(), journal.revision, reason))


def histories(operation: Operation, leader: Leader, services: Collection[str]) -> dict[str, list[Record]]:
    """Return the past events of services from their leader, with what other guards know of their engines.

    Raises errors of nodes.
    """

    def read(member: Member) -> dict[str, list[Record]]:
        if member.engine.container(CONTAINER) is None:
            return {}
        if member.name == operation.node:
            return {service: [*leader.events(service)] for service in services}
        with connect_guard(member) as opened:
            return {service: [*opened.events(service)] for service in services}

    by_node = operation.connected.all(read)
    led = by_node.pop(operation.node)  # first: of two events in one second, the leader's came before
    known = (led, *by_node.values())
    return {service: merge(*(events.get(service, ()) for events in known)) for service in services}


def unplanned(leader: Leader, service: str, make: Callable[[Journal], Intent]) -> Accepted | None:
    """Send an intent that needs no plan, and again where a swap has changed the journal meanwhile.

    Follows the swap that is in progress. Raises Busy or PlanRefused.
    """
    return _changed(leader, leader.state(service), make)


def _changed(leader: Leader, state: ServiceState, make: Callable[[Journal], Intent]) -> Accepted | None:
    service = state.journal.service
    for _ in range(CHANGED_TRIES - 1):
        try:
            return sent(leader, state, make(state.journal), _swap_of(state))
        except Busy:
            newer = leader.state(service)
            if newer.journal.revision == state.journal.revision:
                raise
            state = newer
    return sent(leader, state, make(state.journal), _swap_of(state))


def _swap_of(state: ServiceState) -> str:
    return state.journal.swap.intent if state.journal.swap else ""
