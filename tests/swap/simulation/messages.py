"""What passes between leaders and guards: orders and reports."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap import effects as act
from sparkops.swap.fleet_state import Report
from sparkops.swap.follower import adopts
from sparkops.swap.journal import Journal
from sparkops.swap.orders import Order, order
from tests.swap.simulation.guards import follow, reconciled
from tests.swap.simulation.sharing import by_identity, replace
from tests.swap.simulation.states import one_leader, one_machine
from tests.swap.simulation.world import Leader, Machine, Transition, World, local, reported


def sending(world: World) -> Iterator[Transition]:
    """Orders reach every guard that they can reach, and each but the leader's keeps its copy of the journal.

    The two are one transition, since a fault between them leads nowhere new: a guard that crashes or a node that
    reboots there is in the state of one that did so before the order came, and a fault of another node or of a link
    does not change whether this guard writes its copy. A guard that does anything else first does it in the open. With
    one fault, every mode settles in the same ends as with a transition for each copy.
    """
    sent = world
    for leader in world.leading:
        journal = leader.journal
        if not leader.met and journal.peers and not set(journal.peers) <= journal.without:
            continue
        if any(report.term > journal.term for report in leader.reports):
            continue
        for report in leader.reports:
            machine = sent.machine(report.node)
            current = machine.order
            if current and current.journal == journal and current.boot == report.boot:
                continue
            if world.reaches(journal.leader, report.node):
                sent = deliver(sent, machine, _ordered(journal, report.node, report.boot))
                sent = _copied(sent, report.node) if report.node != journal.leader else sent
    if sent is not world:
        yield "orders", sent


@by_identity
def _ordered(journal: Journal, node: str, boot: str) -> Order:
    return order(journal, node, boot)


def deliver(world: World, machine: Machine, sent: Order) -> World:
    """A guard receives an order, and follows it unless it knows better.

    It forgets results that nobody asks for, and problems of another swap.
    """
    if sent.journal.term < machine.joined:
        return world  # a former leader gets reports only
    received = _received(machine, sent)
    return world if received is machine else world.with_machine(received)


@by_identity
def _received(machine: Machine, sent: Order) -> Machine:
    if not adopts(sent, machine.order, local(machine)):
        return machine
    proving = {rank.rank.container for rank in sent.ranks if rank.prove}
    proofs = tuple(item for item in machine.proofs if item[0] in proving)
    same = _key(sent) == _key(machine.order)
    kept = replace(machine, order=sent, late=machine.order, proofs=proofs)
    return one_machine(kept if same else replace(kept, problems=(), refused=frozenset()))


def _key(order: Order | None) -> str:
    return order.journal.swap.key if order and order.journal.swap else ""


def _copied(world: World, node: str) -> World:
    machine = world.machine(node)
    effect = reconciled(machine)
    return follow(world, machine, effect) if isinstance(effect, act.KeepCopy) else world


def reporting(world: World) -> Iterator[Transition]:
    """Reports reach every leader that they can reach."""
    after = world
    for leader in world.leading:
        name, journal = leader.journal.leader, leader.journal
        new = [reported(world.machine(node)) for node in (name, *journal.peers) if _replies(world, name, node)]
        if all(report in leader.reports for report in new):
            continue
        after = after.with_leader(_informed(leader, *new))
    if after is not world:
        yield "reports", after


def _replies(world: World, leader: str, node: str) -> bool:
    """Whether a guard's reports reach a leader: it has none while Docker does not reply to it."""
    return world.reaches(leader, node) and not world.machine(node).mute


@by_identity
def _informed(leader: Leader, *new: Report) -> Leader:
    fresh = {report.node for report in new}
    kept = tuple(report for report in leader.reports if report.node not in fresh)
    met = leader.met | {report.node for report in new if report.term <= leader.journal.term}
    return one_leader(replace(leader, reports=tuple(sorted((*kept, *new), key=_by_node)), met=met))


def _by_node(report: Report) -> str:
    return report.node


def silence(world: World) -> Iterator[Transition]:
    """A guard that does not report is unknown after a while."""
    for leader in world.leading:
        for report in leader.reports:
            if not _replies(world, leader.journal.leader, report.node):
                rest = tuple(other for other in leader.reports if other != report)
                yield f"{report.node} is silent", world.with_leader(replace(leader, reports=rest))
