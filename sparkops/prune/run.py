"""Give room on the nodes' disks: what was planned and shown, where no swap needs it, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sparkops.errors import NeedsOperator, NodeError, SparkopsError, joined
from sparkops.guard_client import leases
from sparkops.guard_client.commands import CONTAINER
from sparkops.guard_client.leader import GuardDoor, door
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes import host
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.progress import Event, Tell
from sparkops.prune import stored
from sparkops.prune.plan import Policy, Pruning, Removal, plan
from sparkops.prune.retention import Intended
from sparkops.prune.stored import Stored
from sparkops.swap.journal import Journal
from sparkops.swap.values import WireError


@dataclass(frozen=True)
class SeenDisks:
    """What is on the disks of the chosen nodes, and what all guards intend. `problems`: unreadable journals."""

    nodes: tuple[Stored, ...]
    intended: Intended
    problems: tuple[SparkopsError, ...] = ()


@dataclass(frozen=True)
class Pruned:
    """What has gone from one node, and the bytes that were free before and after, where the node says it."""

    removed: tuple[Removal, ...]
    before: int | None
    after: int | None


def read_nodes(connected: Connected, nodes: Sequence[str]) -> SeenDisks:
    """Look at the disks of `nodes`, and at the journals of every connected node. Raises NodeError."""
    by_node = connected.all(_states)
    disks = connected.all(lambda member: _stored(member) if member.name in nodes else None)
    journals: dict[str, list[Journal]] = defaultdict(list)
    untouchable: dict[str, str] = {}
    problems: list[SparkopsError] = []
    for node, states in by_node.items():
        for service, state in states.items():
            if isinstance(state, SparkopsError):
                problems.append(state)
                untouchable[service] = f"the journal of {service} cannot be read on {node}"
                continue
            journals[service].append(state.journal)
            if state.journal.hold:
                untouchable.setdefault(service, f"{service} is on hold: {state.journal.hold}")
            elif state.swap:
                untouchable.setdefault(service, f"a swap of {service} is in phase '{state.swap.phase}'")
    return SeenDisks(tuple(disk for disk in disks.values() if disk), Intended(journals, untouchable), tuple(problems))


def _states(member: Member) -> dict[str, ServiceState | SparkopsError]:
    """What a node's guard knows of each service; for a journal that cannot be read: why."""
    if member.engine.container(CONTAINER) is None:
        return {}
    with door(member) as opened:
        return {service: _state(opened, service) for service in opened.services()}


def _state(opened: GuardDoor, service: str) -> ServiceState | SparkopsError:
    """One that exists and cannot be read needs an operator, says the guard."""
    try:
        return opened.state(service)
    except (NeedsOperator, WireError) as error:
        return error


def _stored(member: Member) -> Stored:
    """Everything on one node's disk. Asked for sizes first, since what comes later can only be more."""
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    usage = stored.usage(member.engine.disk())
    engines = [stored.engine(member.name, inspect, usage.written) for inspect in member.engine.containers()]
    images = [stored.image(inspect, member.engine.history(inspect["Id"])) for inspect in member.engine.images()]
    known = {engine.id for engine in engines}
    return Stored(
        node=member.name,
        engines=tuple(engines),
        used=frozenset(image for container, image in usage.used.items() if container not in known),
        images=tuple(images),
        volumes=usage.volumes,
        cache=usage.cache,
        cache_shared=usage.cache_shared,
        free=_free(facts),
        now_s=facts.now_s,
    )


def _free(facts: host.HostFacts) -> int | None:
    return None if facts.disk_free_gib is None else int(facts.disk_free_gib * host.GIB)


def remove(
    connected: Connected, tell: Tell, seen: SeenDisks, policy: Policy, shown: Pruning, wait_s: float = 0.0
) -> dict[str, Pruned]:
    """Remove what was shown, where it still may go. Where a removal fails the others go on, and then it is raised.

    No engine loads meanwhile; one that does is waited for up to `wait_s`. Raises Busy after that.
    """
    with ExitStack() as leased:
        for name in sorted({removal.node for removal in shown.removals}):
            leased.enter_context(leases.on_node(connected.member(name), "prune", tell, wait_s))
        return _prune(connected, tell, seen, policy, shown)


def _prune(connected: Connected, tell: Tell, seen: SeenDisks, policy: Policy, shown: Pruning) -> dict[str, Pruned]:
    now = read_nodes(connected, [disk.node for disk in seen.nodes])
    still = {removal.key for removal in plan(now.nodes, now.intended, policy).removals}
    due = [removal for removal in shown.removals if removal.key in still]
    return _carry_out(connected, tell, due, {disk.node: disk.free for disk in now.nodes})


def _carry_out(
    connected: Connected, tell: Tell, due: Sequence[Removal], before: Mapping[str, int | None]
) -> dict[str, Pruned]:
    by_node: dict[str, list[Removal]] = {node: [removal for removal in due if removal.node == node] for node in before}

    def on(member: Member) -> Pruned | None:
        if member.name not in by_node:
            return None
        removed, errors = [], []
        for removal in by_node[member.name]:
            tell(Event(member.name, f"removing {removal.kind} {removal.name}, {removal.size / host.GIB:.2f} GiB"))
            try:
                member.node.run(removal.command)
                removed.append(removal)
            except NodeError as error:
                errors.append(error)
        if errors:
            raise joined(errors)
        after = _free(host.parse(member.node.run(host.PREFLIGHT).stdout))
        return Pruned(tuple(removed), before[member.name], after)

    return {name: pruned for name, pruned in connected.all(on).items() if pruned}
