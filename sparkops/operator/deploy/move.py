"""Move gateway and leader to another node while the old ones answer: one hands over to the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from sparkops.errors import Interrupted, PlanRefused, further
from sparkops.gateway import commands
from sparkops.gateway.gateway_version import gateway_facts
from sparkops.node.member import Member
from sparkops.node.progress import Event
from sparkops.operator.build.gateway.image import hashed
from sparkops.operator.deploy.agents import agents, gateway_agent, move_plan, rebuild
from sparkops.operator.deploy.agents.agents import AgentSpecs
from sparkops.operator.deploy.agents.move_plan import Move
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.fleet.guards import leases, membership
from sparkops.operator.fleet.guards.leader import connect_guard, leading
from sparkops.swap import trouble


def read(operation: Operation, keep_s: float = 0.0) -> Move:
    """Return the plan that moves gateway and leader to the gateway's node of this operation. Changes nothing.

    `keep_s`: seconds for which the old gateway stays once the new one answers. Raises PlanRefused also for a service
    that does not serve now; Busy, and errors of nodes.
    """
    connected = operation.connected
    copies = rebuild.read_copies(connected)
    gateways = connected.all(lambda member: member.engine.container(commands.CONTAINER) is not None)
    present = [name for name, there in gateways.items() if there]
    planned = move_plan.plan(operation.node, copies, present, keep_s)
    if planned.leader and not gateways.get(operation.node):  # with one, this move undoes one that did not end well
        _require_serving(connected.member(planned.leader), planned)
    return planned


def _require_serving(member: Member, planned: Move) -> None:
    """Raise PlanRefused if a service fails already: it could not show that the new gateway works."""
    with leading(member) as leader:
        failing = {item.service: why for item in planned.journals if (why := rebuild.failing(leader, item.service))}
    if failing:
        error = rebuild.needs_operator(failing)
        raise PlanRefused(f"a service does not serve: {error}", next_step=error.next_step)


def require_keys(operation: Operation, planned: Move, specs: AgentSpecs) -> None:
    """Raise PlanRefused if the present gateway has API keys that the new one would not get. Raises errors of nodes."""
    if not planned.leader or planned.leader not in planned.closing:
        return
    known = {hashed([key]).strip() for key in specs.gateway.secrets.api_keys}
    if unnamed := len(gateway_facts(operation.connected.member(planned.leader).node).keys - known):
        count = "one API key" if unnamed == 1 else f"{unnamed} API keys"
        problem = (
            f"{planned.leader}: its gateway has {count} that gateway.api_keys does not name: clients would lose it"
        )
        step = "Add the files to gateway.api_keys, or remove the keys: sparkops deploy RECIPE --apply-gateway"
        raise PlanRefused(problem, next_step=step)


def move(operation: Operation, planned: Move, specs: AgentSpecs) -> None:
    """Hand over, and remove the old gateway once it was kept beside the new one.

    Every step can be repeated. Raises NeedsOperator where a service does not serve through the new gateway: the old one
    stays. Raises Busy, PlanRefused and errors of nodes.
    """
    connected, report = operation.connected, operation.report
    failing: Mapping[str, str]
    with _continued(planned):
        if planned.led:
            failing = rebuild.until_served(connected.member(planned.node), planned.rebuild, report)
        else:
            _prepare(operation, planned, specs)
            earlier = [address for name in planned.closing for address in _addresses(operation, name)]
            failing = rebuild.rebuild_on(connected, read(operation).rebuild, specs, report, earlier)
        if failing:
            error = rebuild.needs_operator(failing)
            for name in planned.closing:
                error.next_step = error.steps(f"{trouble.MOVE} {name} undoes it: the gateway there still answers")
            raise error
        _close(operation, planned, specs)


def _addresses(operation: Operation, name: str) -> tuple[str, ...]:
    return membership.addresses_of(operation.connected.member(name))


def _prepare(operation: Operation, planned: Move, specs: AgentSpecs) -> None:
    """Start guard and gateway of the node, which get no requests yet; then let the present leader resign.

    From there on its journals do not change. Raises Busy while a service changes.
    """
    connected, report = operation.connected, operation.report
    member = connected.member(planned.node)
    if not planned.leader:
        return
    leader = connected.member(planned.leader)
    with leases.of_agents(leader, _work(planned), report, operation.wait_s):
        for guarded in (member, leader):
            agents.ensure_guard(guarded, specs.guard, report)
        gateway_agent.ensure(member, specs.gateway, specs.guard, report, apply_gateway=True)
        report(Event(leader.name, f"the guard stops leading, for that of {planned.node}"))
        with connect_guard(leader) as opened:
            opened.resign(planned.node)


def _close(operation: Operation, planned: Move, specs: AgentSpecs) -> None:
    """Remove the old gateways, while no service changes: their routes stay as they are. Raises Busy, Interrupted."""
    connected, report = operation.connected, operation.report
    if not planned.closing:
        return
    with leases.of_agents(connected.member(planned.node), _work(planned), report, operation.wait_s):
        names = " and ".join(planned.closing)
        for service in planned.rebuild.services:
            url = connected.fleet.require_gateway().url(service.port)
            ends = f"the gateway on {names} ends in {planned.keep_s:g} s"
            report(Event(planned.node, f"{service.name}: {url} answers; {ends}"))
        if connected.cancel.wait(planned.keep_s):
            raise Interrupted("interrupted")
        for name in planned.closing:
            member = connected.member(name)
            agent = gateway_agent.agent(name, specs.gateway, specs.guard)
            gateway_agent.remove(member, agent, report, planned.drain_s)
    guarded = {name: member for name, member in connected.members.items() if leases.guarded(member)}
    membership.introduce(replace(connected, members=guarded), planned.node, specs.settings)


def _work(planned: Move) -> str:
    return f"move of the gateway to {planned.node}"


@contextmanager
def _continued(planned: Move) -> Iterator[None]:
    """Add the command that continues to the next steps of an error, and of Ctrl-C."""
    with further(f"{trouble.MOVE} {planned.node} continues"):
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None
