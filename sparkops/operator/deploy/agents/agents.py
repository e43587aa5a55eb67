"""Bring the agents up to date: a guard on every node, and the gateway on its node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from sparkops import names
from sparkops.config import assets
from sparkops.config.inventory import Fleet
from sparkops.errors import CommandFailed, ConnectionLost
from sparkops.node.agents import commands
from sparkops.node.agents.container import answered
from sparkops.node.agents.replaceable import guard_version
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.build.guard.image import DEBIAN, DISK_GIB, guard_context
from sparkops.operator.build.images import gated
from sparkops.operator.build.images.build import BuildOrder, Built, Gate, build_on
from sparkops.operator.build.images.gated import GatedImages
from sparkops.operator.deploy.agents import gateway_agent
from sparkops.operator.deploy.agents.agent import Agent
from sparkops.operator.deploy.agents.differences import AgentContainer, Change, Kind, of_container, require_consent
from sparkops.operator.deploy.agents.gateway_agent import GatewaySpec
from sparkops.operator.deploy.agents.replacement import up
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases, membership
from sparkops.operator.fleet.guards.leader import connect_guard
from sparkops.operator.fleet.guards.membership import GuardSettings
from sparkops.operator.fleet.parallel import all_or_raise, on_each
from sparkops.serving.service_state import needed_nodes, unnamed

KINDS = GUARD, GATEWAY = names.GUARD, names.GATEWAY


@dataclass(frozen=True)
class AgentSpecs:
    """The required agents."""

    guard: BuildOrder
    gateway: GatewaySpec
    settings: GuardSettings = field(default_factory=GuardSettings)
    """Where guards serve figures and send events."""


def load(fleet: Fleet, services: Sequence[Service] = ()) -> AgentSpecs:
    """Return the agents that `services` need, with files read here. Raises ConfigError and UsageError."""
    parent, finished = fleet.build.parent(DEBIAN), fleet.build.finished(GUARD)
    package, day = assets.load_package(), fleet.build.agent_packages
    guard = guard_order(assets.load_templates(), package, parent, finished, gated.of(fleet), day)
    gateway = gateway_agent.load(fleet, fleet.require_gateway(), services)
    monitoring = (
        membership.monitoring_port(fleet.monitoring.port, gateway.secrets.monitoring) if fleet.monitoring else None
    )
    webhook = {"urls": fleet.webhook.urls} if fleet.webhook else None
    return AgentSpecs(guard, gateway, GuardSettings(monitoring, webhook))


def guard_order(
    templates: Mapping[str, str],
    package: Mapping[str, bytes],
    parent: str,
    finished: str = "",
    noted_in: GatedImages | None = None,
    day: str | None = None,
) -> BuildOrder:
    context = guard_context(templates, package, parent, day)
    return BuildOrder(GUARD, context, DISK_GIB, Gate(commands.check_image), finished=finished, noted_in=noted_in)


def changes(connected: Connected, specs: AgentSpecs) -> tuple[Change, ...]:
    """Return the differences of the agents on all connected nodes. Changes nothing.

    Raises NodeError, and PlanRefused where the inventory does not name a node that a service needs.
    """
    connected.all(membership.require_name)
    _require_nodes(connected, specs.gateway.settings.node)
    by_node = connected.all(lambda member: tuple(_changes(member, specs)))
    return tuple(change for node in by_node.values() for change in node)


def _changes(member: Member, specs: AgentSpecs) -> Iterator[Change]:
    """Yield the differences of a node's guard, and of the gateway if this is its node."""
    guard = _guard(member, specs.guard)
    container = _container(member, guard)
    differing = tuple(of_container(member.name, GUARD, container, guard.labels))
    yield from differing
    if not differing and not _reaches(member):
        yield Change(member.name, GUARD, Kind.START, "its connection to Docker is lost")
    gateway = gateway_agent.agent(member.name, specs.gateway, specs.guard)
    place = specs.gateway.settings.node
    container = _container(member, gateway)
    if member.name != place and container:
        yield Change(member.name, GATEWAY, Kind.REMOVE, f"gateway.node is {place}")
    elif member.name == place:
        yield from of_container(member.name, GATEWAY, container, gateway.labels)
        if container and container.running:
            yield from gateway_agent.differences(member, specs.gateway)


def _container(member: Member, agent: Agent) -> AgentContainer | None:
    inspect = member.engine.container(agent.container)
    if inspect is None:
        return None
    state = inspect["State"]
    return AgentContainer(inspect["Config"]["Labels"], state["Running"] and not state["Restarting"])


def _require_nodes(connected: Connected, leader: str) -> None:
    """Raise PlanRefused where a service needs a node that the inventory does not name, removed or renamed."""
    if leader not in connected.members or not leases.guarded(connected.member(leader)):
        return
    try:
        with connect_guard(connected.member(leader)) as guard:
            states = [guard.state(service) for service in guard.services()]
    except ConnectionLost:  # a guard that is about to be replaced; it checks this again before it leaves out a node
        return
    for state in states:
        if lost := sorted(needed_nodes(state.journal, state.reports) - {*connected.fleet.nodes}):
            raise unnamed(state.journal.service, lost[0])


def _reaches(member: Member) -> bool:
    try:
        member.node.run(commands.REACHES)
    except CommandFailed:
        return False
    return True


def ensure(
    connected: Connected, specs: AgentSpecs, report: OnEvent, *, apply_gateway: bool = False, wait_s: float = 0.0
) -> dict[str, tuple[str, ...]]:
    """Bring the guards of all connected nodes up to date, and the gateway with its services if its node is connected.

    Afterwards the guard beside the gateway leads, and the others follow it. Returns the changed agents of each node.
    Raises PlanRefused for changes of the running gateway without `apply_gateway`, Busy if an agent would change during
    a change of a service (after `wait_s`), and the errors of a build.
    """
    leader = specs.gateway.settings.node
    differing = changes(connected, specs)
    if differing and leader in connected.members:  # without differences, the gateway is on the node of the inventory
        membership.require_leader(connected, leader)
    require_consent(differing, given=apply_gateway)
    changing = any(change.needs_lease for change in differing)
    late = {change for change in differing if (change.node, change.agent, change.kind) == (leader, GUARD, Kind.REPLACE)}
    results: dict[str, bool] = {}
    with ExitStack() as leased:
        if changing:
            build(connected, specs, differing, report, apply_gateway=apply_gateway)
            lease = leases.of_agents(connected.member(leader), "change of gateway and guards", report, wait_s)
            leased.enter_context(lease)
        for batch in (set(differing) - late, late):  # the lease of the leader ends with its guard
            jobs = _jobs(connected, specs, batch, report, apply_gateway=apply_gateway)
            results |= all_or_raise(on_each(jobs, lambda name, jobs=jobs: jobs[name](), connected.cancel))  # type: ignore[misc]
    if leader in connected.members:
        membership.introduce(connected, leader, specs.settings)
    return {name: tuple(kind for kind in KINDS if results.get(f"{name} {kind}")) for name in connected.members}


def build(
    connected: Connected,
    specs: AgentSpecs,
    differing: Sequence[Change],
    report: OnEvent,
    *,
    apply_gateway: bool = False,
) -> None:
    """Build the images of what `ensure` installs or replaces: a lease then waits for no build.

    Without `apply_gateway`, nothing for an agent that changes with consent only. A replacement of the gateway needs the
    guard's image too. Raises the errors of a build.
    """
    orders = {
        (GUARD, Kind.INSTALL): (specs.guard,),
        (GUARD, Kind.REPLACE): (specs.guard,),
        (GATEWAY, Kind.INSTALL): (specs.gateway.order,),
        (GATEWAY, Kind.REPLACE): (specs.guard, specs.gateway.order),
    }
    refused = {(change.node, change.agent) for change in differing if change.needs_consent and not apply_gateway}
    due = [change for change in differing if (change.node, change.agent) not in refused]
    needed = [(change.node, orders.get((change.agent, change.kind), ())) for change in due]
    builds = {f"{node} {order.name}": (node, order) for node, of_agent in needed for order in of_agent}

    def build_one(text: str) -> Built:
        node, order = builds[text]
        return build_on(connected.member(node), order, report)

    all_or_raise(on_each(builds, build_one, connected.cancel))


def _jobs(
    connected: Connected, specs: AgentSpecs, differing: Iterable[Change], report: OnEvent, *, apply_gateway: bool
) -> dict[str, Callable[[], bool]]:
    """Return the changes on the nodes as functions that run at once and return whether they changed anything."""
    jobs: dict[str, Callable[[], bool]] = {}
    for node, agent in {(change.node, change.agent) for change in differing}:
        member = connected.member(node)
        if agent == GUARD:
            jobs[f"{node} {GUARD}"] = partial(ensure_guard, member, specs.guard, report)
        elif node != specs.gateway.settings.node:
            agent_there = gateway_agent.agent(node, specs.gateway, specs.guard)
            jobs[f"{node} {GATEWAY}"] = partial(gateway_agent.remove, member, agent_there, report)
        else:
            give = partial(gateway_agent.ensure, member, specs.gateway, specs.guard, report)
            jobs[f"{node} {GATEWAY}"] = partial(give, apply_gateway=apply_gateway)
    return jobs


def ensure_guard(member: Member, order: BuildOrder, report: OnEvent) -> bool:
    """Bring the guard of a node up to date. False if it was. Raises PlanRefused for one of a newer version."""
    guard = _guard(member, order)
    tuple(of_container(member.name, GUARD, _container(member, guard), guard.labels))  # for its refusal
    if not up(member, guard, report):
        if _reaches(member):
            return False
        report(Event(member.name, "restarting the guard: its connection to Docker is lost"))
        member.node.run(commands.RESTART)
    answered(member, commands.CONTAINER, lambda: member.node.run(commands.READY))
    return True


def _guard(member: Member, order: BuildOrder) -> Agent:
    return Agent(
        version=guard_version(member.name, order.context.digest),
        order=order,
        program=order,
        costs="engines and gateway keep running",
        check=commands.check,
    )
