"""Which guard leads a service: the one beside the gateway."""

from __future__ import annotations

from sparkops.errors import PlanRefused, SparkopsError
from sparkops.gateway.commands import SHOW
from sparkops.gateway.facts import parse_gateway
from sparkops.node.agents.commands import CONTAINER
from sparkops.node.docker.places import GATEWAY
from sparkops.node.member import Member
from sparkops.operator.deploy import observe
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards.leader import GuardConnection, Leader, connect_guard
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal


def state_by(member: Member, guard: GuardConnection, service: str) -> ServiceState | None:
    """Return what the guard of a node knows of a service; None without a guard or before a deploy there."""
    if member.engine.container(CONTAINER) is None:
        return None
    state = guard.state(service)
    return state if state.journal.revision else None


def state_on(member: Member, service: str) -> ServiceState | None:
    """Return the same over a stream of its own."""
    with connect_guard(member) as opened:
        return state_by(member, opened, service)


def known_services(connected: Connected) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the services of guards, containers and gateway, and the nodes that could not be read.

    Forgotten services are left out.
    """
    gateway = connected.fleet.gateway
    known, unread = set[str](), list(connected.unreachable)
    for name, names in connected.on_each(
        lambda member: _services_on(member, gateway=gateway is not None and member.name == gateway.node)
    ).items():
        if isinstance(names, SparkopsError):
            unread.append(name)
        else:
            known |= names
    return frozenset(known), tuple(unread)


def _services_on(member: Member, *, gateway: bool) -> frozenset[str]:
    names = {container.service for container in observe.containers(member) if container.running}
    if gateway and member.engine.container(GATEWAY):
        names |= parse_gateway(member.node.run(SHOW).stdout).services.keys()
    if member.engine.container(CONTAINER):
        with connect_guard(member) as opened:
            names |= {name for name in opened.services() if not opened.state(name).journal.forgotten}
    return frozenset(names)


def running(connected: Connected, service: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the containers of a service that run, by node."""
    by_node = connected.all(lambda member: observe.containers(member, service=service))
    named = {
        node: tuple(container.name for container in containers if container.running)
        for node, containers in by_node.items()
    }
    return {node: names for node, names in named.items() if names}


def known(connected: Connected, leader: Leader, service: str) -> ServiceState:
    """Return what the leader knows of a service. Changes nothing.

    Raises PlanRefused where the service is deployed by another leader.
    """
    name = leader.node.name
    asked = leader.state(service) if connected.member(name).engine.container(CONTAINER) else None
    state = asked if asked and asked.journal.revision else None
    if state and state.journal.leader == name:
        return state
    if state and state.journal.deployments:
        raise _led_by(connected, service, state.journal.leader)
    return ServiceState(Journal(service, name), promoted=asked.promoted if asked else ())


def _led_by(connected: Connected, service: str, leader: str) -> PlanRefused:
    problem = f"{service} is already deployed, led by {leader}"
    step = f"sparkops stop {service}"
    if leader not in connected.fleet.nodes:
        step = f"Name the node {leader} in {connected.fleet.file} again, as at the deploy: {step}"
    return PlanRefused(problem, next_step=f"{step}, then deploy it again")


def lead(connected: Connected, leader: Leader, service: str) -> None:
    """Let the guard beside the gateway lead a service that another one has led. Raises PlanRefused while it runs."""
    state, gateway = leader.state(service), leader.node.name
    newer = any(report.kept > state.journal.position for report in state.reports.values())
    if state.journal.revision and not newer:
        return
    copies = [state.journal for state in connected.all(lambda member: state_on(member, service)).values() if state]
    others = [copy for copy in copies if copy.leader != gateway]
    if others:
        leader.lead(service, others)
