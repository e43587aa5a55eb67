"""Free space on the nodes' disks: run the planned removals that no swap needs, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from sparkops.errors import NeedsOperator, NodeError, NotReady, SparkopsError, joined
from sparkops.guard_client import leases
from sparkops.guard_client.commands import CONTAINER, VOLUME
from sparkops.guard_client.leader import connect_guard
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes import host
from sparkops.nodes.connected import Connected
from sparkops.nodes.member import Member
from sparkops.nodes.progress import Event, OnEvent
from sparkops.prune import retention
from sparkops.prune.plan import Policy, Pruning, Removal, plan
from sparkops.prune.retention import Intended, Stored
from sparkops.swap.journal import Journal
from sparkops.swap.wire import WireError


@dataclass(frozen=True)
class DiskSurvey:
    """The disks of the chosen nodes, and the intentions of all guards. `problems`: unreadable journals."""

    nodes: tuple[Stored, ...]
    intended: Intended
    problems: tuple[SparkopsError, ...] = ()


@dataclass(frozen=True)
class Pruned:
    """The removals on one node, and the free bytes before and after; None if unknown."""

    removed: tuple[Removal, ...]
    before: int | None
    after: int | None


def read_nodes(connected: Connected, nodes: Sequence[str]) -> DiskSurvey:
    """Read the disks of `nodes`, and the journals of every connected node. Raises NodeError."""
    by_node = connected.all(_states)
    disks = connected.only(nodes).all(read_disk)
    journals: dict[str, list[Journal]] = defaultdict(list)
    untouchable: dict[str, str] = {}
    problems: list[SparkopsError] = []
    for node, states in by_node.items():
        for service, state in states.items():
            if isinstance(state, SparkopsError) or state.unreadable:
                untouchable[service] = f"the journal of {service} cannot be read on {node}"
                if isinstance(state, SparkopsError):
                    problems.append(state)
                else:
                    problems.append(NeedsOperator(f"{node}: {state.needs_operator}"))
                continue
            journals[service].append(state.journal)
            if state.journal.hold:
                untouchable.setdefault(service, f"{service} is on hold: {state.journal.hold}")
            elif state.swap:
                untouchable.setdefault(service, f"a swap of {service} is in phase '{state.swap.phase}'")
    return DiskSurvey(tuple(disks.values()), Intended(journals, untouchable), tuple(problems))


def _states(member: Member) -> dict[str, ServiceState | SparkopsError]:
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
                states[service] = guard.state(service)
            except (NeedsOperator, WireError) as error:
                states[service] = error
    return states


def read_disk(member: Member, others: Collection[str] = ()) -> Stored:
    """Read the disk of one node. Sizes come first, since data that is written later can only add to them.

    `others`: as for `parse_disk`.
    """
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    counted = member.engine.disk()
    disk = retention.parse_disk(member.name, counted, member.engine.containers(), others)
    images = tuple(
        retention.parse_image(inspect, member.engine.history(inspect["Id"])) for inspect in member.engine.images()
    )
    return replace(disk, images=images, free=_free(facts), now_s=facts.now_s)


def _free(facts: host.HostFacts) -> int | None:
    return None if facts.disk_free_gib is None else int(facts.disk_free_gib * host.GIB)


def remove(
    connected: Connected, report: OnEvent, survey: DiskSurvey, policy: Policy, planned: Pruning, wait_s: float = 0.0
) -> dict[str, Pruned]:
    """Run the planned removals that are still allowed. A failed removal stops no other; it is raised at the end.

    Blocks engine loads meanwhile. Waits up to `wait_s` for an engine that loads, then raises Busy.
    """
    with ExitStack() as leased:
        for name in sorted({removal.node for removal in planned.removals}):
            leased.enter_context(leases.on_node(connected.member(name), "prune", report, wait_s))
        current = read_nodes(connected, [disk.node for disk in survey.nodes])
        allowed = {removal.key for removal in plan(current.nodes, current.intended, policy).removals}
        due = [removal for removal in planned.removals if removal.key in allowed]
        return _run(connected, report, due, {disk.node: disk.free for disk in current.nodes})


def run_removals(member: Member, due: Iterable[Removal], report: OnEvent) -> tuple[list[Removal], list[SparkopsError]]:
    """Run removals on one node, in order; a failed one stops no other. Return those that succeeded, and the errors."""
    removed: list[Removal] = []
    errors: list[SparkopsError] = []
    for removal in due:
        size = f", {removal.size / host.GIB:.2f} GiB" if removal.size else ""
        report(Event(member.name, f"removing {removal.kind} {removal.name}{size}"))
        try:
            member.node.run(removal.command)
            removed.append(removal)
        except NodeError as error:
            errors.append(error)
    return removed, errors


def _run(
    connected: Connected, report: OnEvent, due: Sequence[Removal], free: Mapping[str, int | None]
) -> dict[str, Pruned]:
    """Run removals on all nodes at once. `free`: free bytes of each node before."""

    def on_node(member: Member) -> Pruned:
        removed, errors = run_removals(member, [removal for removal in due if removal.node == member.name], report)
        if errors:
            raise joined(errors)
        after = _free(host.parse(member.node.run(host.PREFLIGHT).stdout))
        return Pruned(tuple(removed), free[member.name], after)

    return connected.only(list(free)).all(on_node)
