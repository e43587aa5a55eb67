"""Give room on the nodes' disks: what was planned and shown, under the locks of all services, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from sparkops.errors import NeedsPerson, NodeError, NodesFailed, SparkopsError
from sparkops.facts import host, stored
from sparkops.facts.stored import Stored
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.guarded import Link, linked
from sparkops.fleet.held import Held, hold
from sparkops.fleet.planning import Order
from sparkops.fleet.progress import Event
from sparkops.plan import prune as planning
from sparkops.plan.journal import Journal
from sparkops.plan.keep import Intended
from sparkops.plan.prune import Policy, Pruning, Removal


@dataclass(frozen=True)
class Seen:
    """What is on the disks of the chosen nodes, and what all guards have written down.

    `kept_by` are the nodes whose guards have a journal of a service; `problems` are journals that cannot be read.
    """

    nodes: tuple[Stored, ...]
    intended: Intended
    kept_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    problems: tuple[SparkopsError, ...] = ()


@dataclass(frozen=True)
class Pruned:
    """What has gone from one node, and the bytes that were free before and after, where the node says it."""

    removed: tuple[Removal, ...]
    before: int | None
    after: int | None


def look(connected: Connected, nodes: Sequence[str]) -> Seen:
    """Look at the disks of `nodes`, and at the journals of every connected node. Raises NodeError."""
    told = connected.all(_journals)
    disks = connected.all(lambda member: _stored(member) if member.name in nodes else None)
    journals: dict[str, list[Journal]] = defaultdict(list)
    kept_by: dict[str, list[str]] = defaultdict(list)
    untouchable: dict[str, str] = {}
    problems: list[SparkopsError] = []
    for node, found in told.items():
        for service, journal in found.items():
            kept_by[service].append(node)
            if isinstance(journal, SparkopsError):
                problems.append(journal)
                untouchable[service] = f"the journal of {service} cannot be read on {node}"
            else:
                journals[service].append(journal)
                if journal.hold:
                    untouchable.setdefault(service, f"{service} is on hold: {journal.hold}")
    found_disks = tuple(each for each in disks.values() if each)
    return Seen(found_disks, Intended(journals, untouchable), kept_by, tuple(problems))


def _journals(member: Member) -> dict[str, Journal | SparkopsError]:
    """The journals of a node's guard by service; for one that cannot be read: why."""
    with linked(member) as link:
        if link is None:
            return {}
        return {service: _journal(link, service) for service in link.ask("services", "")}


def _journal(link: Link, service: str) -> Journal | SparkopsError:
    """One that is there and cannot be understood needs a person, says the guard."""
    try:
        return link.journal(service)
    except NodeError as error:
        if error.exit_code != NeedsPerson.exit_code:
            raise
        return error


def _stored(member: Member) -> Stored:
    """Everything on one node's disk. Asked for sizes first, since what comes later can only be more."""
    facts = host.parse(member.node.run(host.PREFLIGHT).stdout)
    usage = stored.usage(member.engine.disk())
    engines = [stored.engine(member.name, each, usage.written) for each in member.engine.containers()]
    images = [stored.image(each, member.engine.history(each["Id"])) for each in member.engine.images()]
    known = {each.id for each in engines}
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


def prune(order: Order, seen: Seen, policy: Policy, shown: Pruning) -> dict[str, Pruned]:
    """Remove what was shown, where it still may go now that no deploy can begin. Raises Busy, and what has failed.

    Where one removal fails the others go on.
    """
    nodes = [each.node for each in seen.nodes]
    with _all_locked(order, seen) as held:
        now = look(order.connected, nodes)
        still = {each.key for each in planning.plan(now.nodes, now.intended, policy).removals}
        unlocked = set(now.kept_by) - set(held)
        due = [each for each in shown.removals if each.key in still and each.service not in unlocked]
        before = {each.node: each.free for each in now.nodes}
        return _carry_out(order, held, due, before)


@contextmanager
def _all_locked(order: Order, seen: Seen) -> Iterator[Mapping[str, Held]]:
    """The lock of every service that has a journal, in one order, so that two of us never wait for each other."""
    with ExitStack() as opened:
        held = {}
        for service, nodes in sorted(seen.kept_by.items()):
            if service not in seen.intended.untouchable:
                held[service] = opened.enter_context(hold(order.connected, nodes, order.claim(service)))
        yield held


def _carry_out(
    order: Order, held: Mapping[str, Held], due: Sequence[Removal], before: Mapping[str, int | None]
) -> dict[str, Pruned]:
    by_node: dict[str, list[Removal]] = {node: [each for each in due if each.node == node] for node in before}

    def on(member: Member) -> Pruned | None:
        if member.name not in by_node:
            return None
        removed, errors = [], []
        for each in by_node[member.name]:
            order.tell(Event(member.name, f"removing {each.kind} {each.name}, {each.size / host.GIB:.2f} GiB"))
            try:
                _remove(member, held.get(each.service), each)
                removed.append(each)
            except NodeError as error:
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else NodesFailed(errors)
        after = _free(host.parse(member.node.run(host.PREFLIGHT).stdout))
        return Pruned(tuple(removed), before[member.name], after)

    return {name: each for name, each in order.connected.all(on).items() if each}


def _remove(member: Member, held: Held | None, due: Removal) -> None:
    """Through the guard, which refuses whoever has lost the lock; what no service has used has none."""
    if held and member.name in held.links:
        held.run(member.name, due.command)
    else:
        member.node.run(due.command)
