"""Rebuild gateway and leader on another node, from the journals that the guards keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparkops.errors import Interrupted, NeedsOperator
from sparkops.node.agents import commands
from sparkops.node.agents.container import answered
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.node.waiting import Waiting
from sparkops.operator.deploy.agents import agents, gateway_agent, rebuild_plan
from sparkops.operator.deploy.agents.agents import AgentSpecs
from sparkops.operator.deploy.agents.rebuild_plan import GuardCopies, Rebuild
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases, membership
from sparkops.operator.fleet.guards.leader import Leader, connect_guard, leading
from sparkops.swap import trouble
from sparkops.swap.rebuild import given_up

SERVE_S, POLL_S = 90.0, 1.0


def read_copies(connected: Connected) -> dict[str, GuardCopies]:
    """Return the journals on the guard of each connected node that has one. Raises NodeError."""

    def read_copies(member: Member) -> GuardCopies | None:
        if not leases.guarded(member):
            return None
        with connect_guard(member) as opened:
            return opened.copies(rebuild_plan.read)

    return {node: copies for node, copies in connected.all(read_copies).items() if copies is not None}


def rebuild_on(
    connected: Connected, plan: Rebuild, specs: AgentSpecs, report: OnEvent, besides: Sequence[str] = ()
) -> Mapping[str, str]:
    """Make the planned node lead with these journals and a new fleet key, and run the gateway there.

    Every step can be repeated. Keys of earlier leaders stay only for nodes that may not know the new one yet.
    `besides`: addresses of an earlier gateway that still has requests.
    Returns by service why it does not serve after SERVE_S, with the next step; none that serves. Raises NodeError.
    """
    member, former = connected.member(plan.node), unaware(connected, plan)
    agents.ensure_guard(member, specs.guard, report)
    report(Event(plan.node, f"taking the lead of {', '.join(item.service for item in plan.journals) or 'no service'}"))
    with connect_guard(member) as opened:
        opened.take(plan.journals, former)
    member.node.run(commands.RESTART)
    answered(member, commands.CONTAINER, lambda: member.node.run(commands.READY))
    gateway_agent.ensure(member, specs.gateway, specs.guard, report, apply_gateway=True)
    guarded = {name: other for name, other in connected.members.items() if leases.guarded(other)}
    membership.introduce(replace(connected, members=guarded), plan.node, specs.settings, former, besides)
    return until_served(member, plan, report)


def unaware(connected: Connected, plan: Rebuild) -> frozenset[str]:
    """Return the nodes of the inventory whose guards may not know yet who leads."""
    return frozenset(connected.fleet.nodes) - plan.following


def until_served(member: Member, plan: Rebuild, report: OnEvent) -> dict[str, str]:
    """Wait until each service serves behind the leader of this node. Returns by service why it does not by then."""
    services = [journal.service for journal in (*plan.journals, *plan.kept)]

    def missing() -> dict[str, str]:
        return {service: why for service in services if (why := failing(leader, service))}

    def report_missing(missing: Mapping[str, str]) -> None:
        for service, why in missing.items():
            report(Event(plan.node, f"waiting for {service}: {trouble.reason(why)}", lasting=False))

    interrupted = Interrupted("interrupted; the fleet continues", next_step="sparkops status")
    waiting = Waiting(POLL_S, SERVE_S, member.node.cancel, interrupted=interrupted)
    with leading(member) as leader:
        return waiting.poll(missing, lambda missing: not missing, report_missing)


def needs_operator(failing: Mapping[str, str]) -> NeedsOperator:
    """Return the error of services that do not serve, with the next steps of each once."""
    problem = "\n".join(f"{service}: {trouble.reason(why)}" for service, why in failing.items())
    steps = dict.fromkeys(step for why in failing.values() for step in why.partition(trouble.NEXT)[2].splitlines())
    return NeedsOperator(problem, next_step="\n".join(steps))


def failing(leader: Leader, service: str) -> str:
    """Return why a service does not serve, with the next step; empty if it serves, was stopped or never had a release.

    The two are in one text, separated by `trouble.NEXT`.
    """
    state = leader.state(service)
    active, view = state.journal.active, state.gateway
    if active is None:
        lost = given_up(state.journal)
        why = f"no release remains: {' and '.join(lost)} ran on lost nodes"
        return f"{why}{trouble.NEXT}{trouble.AGAIN}" if lost else ""
    if why := state.needs_operator:
        step = trouble.next_step(state.journal, why, state.missing)
        return f"{trouble.reason(why)}{trouble.NEXT}{step}"
    waits = f"{active.release} has no traffic yet{trouble.NEXT}sparkops status"
    return "" if view and view.serves(active) else waits
