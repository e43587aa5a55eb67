"""Remove what no journal names from the nodes' disks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.errors import NeedsOperator, NodeError, NotReady, SparkopsError, joined
from sparkops.node import host
from sparkops.node.agents.commands import CONTAINER, VOLUME
from sparkops.node.docker import facts
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.deploy.prune.plan import plan, staying
from sparkops.operator.deploy.prune.stored import Stored, parse_image
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.guards.leader import connect_guard
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal
from sparkops.swap.wire import WireError
from sparkops.units import GIB


@dataclass(frozen=True)
class Pruning:
    """The removals on one node, the free bytes of Docker's disk beside them, None if unknown, and images that stay."""

    removals: tuple[Command, ...]
    free: int | None
    images: tuple[str, ...] = ()

    def still(self, now: Pruning) -> list[Command]:
        """Return the removals that are planned now too: an operator has agreed to no other."""
        return [removal for removal in self.removals if removal in now.removals]


def prepare(connected: Connected, nodes: Sequence[str]) -> dict[str, Pruning]:
    """Return what may be removed from `nodes`. Changes nothing.

    The journals of every connected node are read after the disks, so that they name what a deploy creates meanwhile.
    Raises NodeError for a guard that does not answer, and NeedsOperator for journals that cannot be read: what they
    name is unknown.
    """
    disks = connected.only(nodes).all(read_disk)
    journals = readable(connected.all(states))
    plans = {node: plan(disk, journals) for node, disk in disks.items()}
    return {node: Pruning(plans[node], disk.free, staying(disk, plans[node])) for node, disk in disks.items()}


def readable(states: Mapping[str, Mapping[str, ServiceState | SparkopsError]]) -> list[Journal]:
    """Return every journal, from what the guard of each node says of its services. Pure.

    Raises all that cannot be read, with their nodes: which releases they need is unknown.
    """
    journals: list[Journal] = []
    problems: list[SparkopsError] = []
    for node, services in states.items():
        for state in services.values():
            if isinstance(state, SparkopsError):
                problems.append(NeedsOperator(f"{node}: {state}", next_step=state.next_step))
            else:
                journals.append(state.journal)
    if problems:
        raise joined(problems)
    return journals


def states(member: Member) -> dict[str, ServiceState | SparkopsError]:
    """Return the services of a node's guard; none before a deploy has created it.

    Raises NotReady for a guard whose container was removed: its journals are still in its volume.
    """
    if member.engine.container(CONTAINER) is not None:
        return guard_states(member)
    if member.engine.has_volume(VOLUME):
        problem = f"{CONTAINER} not found: which releases its journals need is unknown"
        raise NotReady(
            member.name, problem, next_step="Any deploy to the node starts its guard: sparkops deploy RECIPE"
        )
    return {}


def guard_states(member: Member) -> dict[str, ServiceState | SparkopsError]:
    """Return the state of each service of a node's guard, or why it cannot be read. Raises NodeError."""
    states: dict[str, ServiceState | SparkopsError] = {}
    with connect_guard(member) as guard:
        for service in guard.services():
            try:
                state = guard.state(service)
            except (NeedsOperator, WireError) as error:
                states[service] = error
            else:
                states[service] = NeedsOperator(state.needs_operator) if state.unreadable else state
    return states


def read_disk(member: Member) -> Stored:
    """Read what one node has. Containers come last: one that is created meanwhile keeps its image."""
    node, engine = host.parse(member.node.run(host.PREFLIGHT).stdout), member.engine
    images, volumes = tuple(filter(None, map(parse_image, engine.images()))), tuple(engine.volumes())
    engines = tuple(facts.parse_container(member.name, inspect) for inspect in engine.containers())
    return Stored(member.name, engines, images, volumes, engine.used_images(), _free(node), node.now_s)


def _free(node: host.HostFacts) -> int | None:
    return None if node.disk_free_gib is None else int(node.disk_free_gib * GIB)


def remove(
    connected: Connected, report: OnEvent, planned: Mapping[str, Pruning], wait_s: float = 0.0
) -> dict[str, Pruning]:
    """Run the planned removals that are still allowed. Returns those that succeeded, and what is free afterwards.

    Blocks engine loads meanwhile. Waits up to `wait_s` for an engine that loads, then raises Busy. A failed removal
    stops no other; it is raised at the end.
    """
    with ExitStack() as leased:
        for name in sorted(name for name, pruning in planned.items() if pruning.removals):
            leased.enter_context(leases.on_node(connected.member(name), "prune", report, wait_s))
        allowed = prepare(connected, list(planned))

        def on_node(member: Member) -> Pruning:
            removed, errors = run_removals(member, planned[member.name].still(allowed[member.name]), report)
            if errors:
                raise joined(errors)
            return Pruning(tuple(removed), _free(host.parse(member.node.run(host.PREFLIGHT).stdout)))

        return connected.only(list(planned)).all(on_node)


def run_removals(member: Member, due: Iterable[Command], report: OnEvent) -> tuple[list[Command], list[SparkopsError]]:
    """Run removals on one node, in order; a failed one stops no other. Return those that succeeded, and the errors."""
    removed: list[Command] = []
    errors: list[SparkopsError] = []
    for removal in due:
        report(Event(member.name, str(removal)))
        try:
            member.node.run(removal)
            removed.append(removal)
        except NodeError as error:
            errors.append(error)
    return removed, errors
