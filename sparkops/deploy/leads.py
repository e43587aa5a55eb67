"""Which guards lead a service: the one beside the gateway, or without a gateway that of each replica's rank 0."""

from __future__ import annotations

from collections.abc import Sequence

from sparkops.deploy import observe, plan
from sparkops.deploy.placement import DeployOptions, nodes_of
from sparkops.deploy.preconditions import Current, differing, place
from sparkops.docker.places import GATEWAY
from sparkops.errors import PlanRefused, SparkopsError
from sparkops.gateway.commands import SHOW
from sparkops.gateway.facts import parse_gateway
from sparkops.guard_client import membership
from sparkops.guard_client.commands import CONTAINER
from sparkops.guard_client.leader import GuardConnection, Leader, connect_guard
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.progress import Event, OnEvent
from sparkops.release import Release
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment

Place = tuple[str, ...]
"""The nodes of one replica, that of rank 0 first."""


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


def direct(connected: Connected, service: str, report: OnEvent) -> dict[str, ServiceState]:
    """Return the nodes whose guards lead the service without a gateway. One that cannot be asked is reported."""
    states: dict[str, ServiceState] = {}
    for name, state in connected.on_each(lambda member: state_on(member, service)).items():
        if isinstance(state, SparkopsError):
            report(Event(name, f"skipped: {state}"))
        elif state is not None and state.direct:
            states[name] = state
    return states


def heads(connected: Connected, service: str, report: OnEvent, gateway: Leader | None) -> dict[str, bool]:
    """Return the nodes whose guards lead a service, and whether without a gateway. `gateway`: the guard beside one.

    Where nothing is deployed, behind the gateway or without one, it is the gateway's. Empty: no guard leads it.
    """
    if gateway is None:
        return dict.fromkeys(direct(connected, service, report), True)
    node = gateway.node.name
    state = state_by(connected.member(node), gateway, service)
    if state and state.journal.leader == node and not state.direct and _deployed(state):
        return {node: False}
    return dict.fromkeys(direct(connected, service, report), True) or {node: False}


def _deployed(state: ServiceState) -> bool:
    return bool(state.journal.deployments) or state.journal.stopping


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


def leader_elsewhere(connected: Connected, service: str) -> str:
    """Return the node that leads a replica with a rank on a connected one, and is not connected; empty for none."""
    for state in connected.all(lambda member: state_on(member, service)).values():
        if state and _deployed(state) and state.journal.leader not in connected.members:
            return state.journal.leader
    return ""


def running(connected: Connected, service: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the containers of a service that run, by node."""
    by_node = connected.all(lambda member: observe.containers(member, service=service))
    named = {
        node: tuple(container.name for container in containers if container.running)
        for node, containers in by_node.items()
    }
    return {node: names for node, names in named.items() if names}


def places(connected: Connected, release: Release, nodes: Sequence[str], report: OnEvent) -> tuple[Place, ...]:
    """Return where a release is deployed without a gateway. Raises PlanRefused."""
    observed = observe.before_deploy(connected, release)
    if release.recipe.serve.tensor_parallel == 1:
        chosen = place(release.recipe, nodes, observed)
        for problem in differing(release, {name: observed[name] for name in chosen}):
            raise problem
        return tuple((name,) for name in chosen)
    for state in direct(connected, release.service, report).values():
        if state.journal.active:
            return (_place_of(connected, state.journal.active),)
    swap_plan = plan.plan(release, observed, Current(direct=True), DeployOptions(tuple(nodes)), connected.fleet.fabric)
    return (tuple(rank.node for rank in swap_plan.ranks),)


def _place_of(connected: Connected, active: Deployment) -> Place:
    nodes = nodes_of(active)
    if set(nodes) <= connected.members.keys():
        return nodes
    problem = (
        f"{active.release} runs on {' and '.join(nodes)}: without a gateway, only these nodes can run its replacement"
    )
    raise PlanRefused(problem, next_step="Pass these nodes with --node, or stop the service first: sparkops stop")


def known(connected: Connected, leader: Leader, service: str, report: OnEvent, *, direct: bool) -> ServiceState:
    """Return what a guard knows of a service that it leads, or is to lead. Changes nothing.

    Raises PlanRefused where the service is deployed in another way: its port is not free.
    """
    name = leader.node.name
    state = state_by(connected.member(name), leader, service)
    if state and state.journal.leader == name and state.direct == direct:
        return state
    if state and state.journal.deployments:
        raise _led_by(connected, service, state.journal.leader)
    if not direct:
        _require_free(connected, service, report)
    return ServiceState(Journal(service, name))


def lead_directly(connected: Connected, leader: Leader, service: str, nodes: Place) -> None:
    """Let the guard on the first node lead a replica on these nodes without a gateway. Raises PlanRefused."""
    head, *others = nodes
    if others:
        membership.introduce_ranks(connected, head, others)
    states = [state_on(connected.member(name), service) for name in others]
    leader.lead(service, [state.journal for state in states if state], others, direct=True)


def _led_by(connected: Connected, service: str, leader: str) -> PlanRefused:
    problem = f"{service} is already deployed, led by {leader}"
    return PlanRefused(problem, next_step=stop_step(connected, service, leader) + ", then deploy it again")


def stop_step(connected: Connected, service: str, leader: str) -> str:
    """Return how to stop what the guard of a node leads: under the name that the node had at the deploy."""
    if leader in connected.fleet.nodes:
        return f"sparkops stop {service}"
    return f"Name the node {leader} in {connected.fleet.file} again, as at the deploy: sparkops stop {service}"


def _require_free(connected: Connected, service: str, report: OnEvent) -> None:
    """Raise PlanRefused where a service that is to be behind the gateway runs without one."""
    for node, state in direct(connected, service, report).items():
        if _deployed(state):
            raise _led_by(connected, service, node)


def lead_behind_gateway(connected: Connected, leader: Leader, service: str) -> None:
    """Let the guard beside the gateway lead a service that another one has led. Raises PlanRefused while it runs."""
    state, gateway = leader.state(service), leader.node.name
    newer = any(report.kept > state.journal.position for report in state.reports.values())
    if state.journal.revision and not state.direct and not newer:
        return
    copies = [state.journal for state in connected.all(lambda member: state_on(member, service)).values() if state]
    others = [copy for copy in copies if copy.leader != gateway]
    if others or state.direct:
        leader.lead(service, others, (), direct=False)
