"""Intents that need no plan: promote, cancel, stop, hold. A swap that changes the journal makes them new."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sparkops.deploy.deployment import new_id
from sparkops.errors import Busy, NeedsOperator
from sparkops.guard_client.commands import CONTAINER
from sparkops.guard_client.ending import swap_line
from sparkops.guard_client.following import Accepted
from sparkops.guard_client.leader import Leader, connect_guard
from sparkops.guard_client.replies import Record, merge
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes.connected import Connected
from sparkops.nodes.member import Member
from sparkops.nodes.progress import Event, OnEvent
from sparkops.swap import trouble
from sparkops.swap.intents import Cancel, Forget, Hold, Intent, Promote, Stop
from sparkops.swap.journal import Journal

CHANGED_TRIES = 5  # a swap changes the journal at each phase


def sent(leader: Leader, state: ServiceState, intent: Intent, follows: str | None = None) -> Accepted | None:
    """Send an intent: None where the leader finds nothing to do. Raises Busy or PlanRefused."""
    decision = leader.intend(state.journal.service, intent)
    decision.require(state.journal.service)
    swap_intent = intent.id if follows is None else follows
    return Accepted(swap_intent, state.last, state.journal.trouble) if decision.accepted else None


def cancel(leader: Leader, service: str) -> Accepted | None:
    """Let an unfinished swap return to the old release. Raises Busy or PlanRefused."""
    return unplanned(leader, service, lambda journal: Cancel(new_id(), journal.revision))


def promote(leader: Leader, service: str) -> Accepted | None:
    """Keep a release that waits for promotion. Raises Busy or PlanRefused."""
    return unplanned(leader, service, lambda journal: Promote(new_id(), journal.revision))


def stop(leader: Leader, service: str) -> Accepted | None:
    """Stop a service: traffic first, then requests in progress, then engines. Joins a stop in progress.

    Raises Busy or PlanRefused.
    """
    state = leader.state(service)
    if state.journal.stopping or state.journal.halting:
        return Accepted("", state.last)
    accepted = _changed(leader, state, lambda journal: Stop(new_id(), journal.revision))
    return replace(accepted, intent="") if accepted else None


def forget(leader: Leader, service: str) -> Accepted | None:
    """Give up a stopped service: its names and port at the gateway are free. Raises Busy or PlanRefused."""
    return unplanned(leader, service, lambda journal: Forget(new_id(), journal.revision))


def in_progress(leader: Leader, service: str, report: OnEvent) -> Accepted | None:
    """Return the swap or stop in progress, and report what it is; None without one."""
    state = leader.state(service)
    if state.journal.stopping or state.journal.halting:
        return Accepted("", state.last)
    if state.swap:
        report(Event(leader.node.name, swap_line(state.swap)))
        return Accepted(state.swap.intent, state.last)
    if state.needs_operator:
        step = trouble.next_step(state.journal, state.needs_operator, state.missing)
        raise NeedsOperator(f"{service}: {trouble.reason(state.needs_operator)}", next_step=step)
    return None


def hold(leader: Leader, service: str, reason: str) -> None:
    """Block changes of a service; an empty reason ends that. Raises Busy or PlanRefused."""
    unplanned(leader, service, lambda journal: Hold(new_id(), journal.revision, reason))


def events(connected: Connected, leaders: Mapping[str, Leader], service: str) -> list[Record]:
    """Return the past events of a service from its leaders, with what other guards know of its engines.

    Raises errors of nodes.
    """

    def read(member: Member) -> list[Record]:
        if member.engine.container(CONTAINER) is None:
            return []
        if leader := leaders.get(member.name):
            several = {"node": member.name} if len(leaders) > 1 else {}
            return [{**event, **several} for event in leader.events(service)]
        with connect_guard(member) as opened:
            return [*opened.events(service)]

    by_node = connected.all(read)
    led = [event for name in leaders for event in by_node[name]]
    return merge(led, (event for name, kept in by_node.items() if name not in leaders for event in kept))


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
