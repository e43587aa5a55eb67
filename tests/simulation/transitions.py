"""What happens by itself. The first transition that is possible is the next one, so a run without faults is fair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from sparkops.swap import effects as act
from sparkops.swap.effects import FollowerEffect, LeaderEffect
from sparkops.swap.follower import adopts, reconcile
from sparkops.swap.journal import Journal
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, RankSpec
from sparkops.swap.orders import Order, order
from sparkops.swap.seen import Report
from tests.simulation import laws
from tests.simulation.world import BOOT, Engine, Health, Leader, Machine, World, by_identity, reported

Transition = tuple[str, World]


def enabled(world: World) -> Iterator[Transition]:
    """Every transition that is possible now, in the order of a fair schedule."""
    for source in (
        _guards,
        _orders,
        _reports,
        _acknowledged,
        _leaders,
        _engines,
        _streams,
        _silence,
        _sampled,
        _links,
        _waited,
    ):
        yield from source(world)


def following(world: World) -> Transition | None:
    """The next transition of the fair schedule."""
    return next(enabled(world), None)


def _guards(world: World) -> Iterator[Transition]:
    for machine in world.machines:
        if not machine.lost and (effect := reconciled(machine)):
            yield f"{machine.name}: {effect}", _follow(world, machine, effect)


@by_identity
def reconciled(machine: Machine) -> FollowerEffect | None:
    return reconcile(machine.order, machine.local())


def _orders(world: World) -> Iterator[Transition]:
    """Orders reach every guard that they can reach."""
    sent = world
    for leader in world.leaders:
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
                sent = deliver(sent, machine, order(journal, report.node, report.boot))
    if sent is not world:
        yield "orders", sent


def deliver(world: World, machine: Machine, sent: Order) -> World:
    """A guard receives an order, and follows it unless it knows better. It forgets results that nobody asks for."""
    if not adopts(sent, machine.order, machine.local()):
        return world
    asked = {rank.rank.container for rank in sent.ranks if rank.prove}
    proofs = tuple(item for item in machine.proofs if item[0] in asked)
    return world.with_machine(replace(machine, order=sent, late=machine.order, proofs=proofs))


def _reports(world: World) -> Iterator[Transition]:
    """Reports reach every leader that they can reach."""
    after = world
    for leader in world.leaders:
        name, journal = leader.journal.leader, leader.journal
        new = [reported(world.machine(node)) for node in (name, *journal.peers) if world.reaches(name, node)]
        if all(report in leader.reports for report in new):
            continue
        fresh = {report.node for report in new}
        kept = tuple(report for report in leader.reports if report.node not in fresh)
        met = leader.met | {report.node for report in new if report.term <= journal.term}
        after = after.with_leader(replace(leader, reports=tuple(sorted((*kept, *new), key=_by_node)), met=met))
    if after is not world:
        yield "reports", after


def _by_node(report: Report) -> str:
    return report.node


def _acknowledged(world: World) -> Iterator[Transition]:
    """An intent counts once another guard has its revision on disk."""
    leader = world.leader
    copies = [report.revision for report in leader.reports if report.node != leader.journal.leader]
    for intent, revision in world.asked:
        if any(copy >= revision for copy in copies) and leader.journal.outcome(intent):
            rest = tuple(known for known in world.asked if known != (intent, revision))
            yield f"{intent} counts", replace(world, asked=rest, acknowledged=(*world.acknowledged, intent))


def _leaders(world: World) -> Iterator[Transition]:
    for leader in world.leaders:
        if not world.machine(leader.journal.leader).lost and (effect := step(leader.journal, world.seen(leader))):
            yield f"leader: {effect}", lead(world, leader, effect)


def lead(world: World, leader: Leader, effect: LeaderEffect) -> World:
    """Execute one effect of a leader."""
    checked = laws.leading(world, leader, effect)
    gateway = checked.gateway
    match effect:
        case act.WriteJournal(journal=journal):
            return checked.with_leader(written(leader, journal))
        case act.PointSlot(deployment=deployment):
            slots = {**dict(gateway.slots), deployment.slot: deployment.release}
            return replace(checked, gateway=replace(gateway, slots=tuple(sorted(slots.items()))))
        case act.SwitchTraffic(deployment=deployment):
            open_ = (*gateway.open, gateway.traffic) if world.serves(gateway.traffic) is Answer.YES else gateway.open
            to = deployment.release if deployment else ""
            moved = replace(gateway, traffic=to, open=tuple(sorted(set(open_) - {to})))
        case act.CutRequests(deployment=deployment):
            moved = replace(gateway, open=tuple(name for name in gateway.open if name != deployment.release))
        case act.ConfigureAgents(digest=digest):
            moved = replace(gateway, agents=digest)
    return replace(checked, gateway=moved).with_leader(replace(leader, waited=False))


def written(leader: Leader, journal: Journal) -> Leader:
    """A journal on disk; the clocks of a phase start with it."""
    old, new = leader.journal.swap, journal.swap
    same = bool(old and new) and (old and old.phase, old and old.key) == (new and new.phase, new and new.key)
    return replace(leader, journal=journal, sampled=same and leader.sampled, waited=False)


def _engines(world: World) -> Iterator[Transition]:
    for machine, engine in world.engines():
        if machine.lost or engine.health is not Health.LOADING:
            continue
        if engine.turns is not Health.LOADING and _joined(world, engine):
            loaded = replace(engine, health=engine.turns)
            yield f"{engine.container} is {engine.turns}", world.with_machine(machine.holding(loaded))
        elif _stuck(world, engine) and engine.container not in dict(machine.problems):
            stalled = replace(machine, problems=(*machine.problems, (engine.container, "stalled")))
            yield f"{engine.container} stalls", world.with_machine(stalled)  # its guard watches the load


def _stuck(world: World, engine: Engine) -> bool:
    """Whether a load never ends: by itself, or since a rank that it waits for will not join."""
    ranks = [other for _, other in world.engines() if other.release == engine.release and other != engine]
    return engine.turns is Health.LOADING or not any(other.health is Health.LOADING for other in ranks)


def _joined(world: World, engine: Engine) -> bool:
    """Rank 0 of several is ready once every rank runs under the same start."""
    if not engine.container.endswith("-r0"):
        return True
    ranks = [other for _, other in world.engines() if other.release == engine.release]
    return all(other == engine or (other.health is Health.GOOD and other.key == engine.key) for other in ranks)


def _streams(world: World) -> Iterator[Transition]:
    gateway = world.gateway
    for release in gateway.open:
        rest = tuple(name for name in gateway.open if name != release)
        yield f"requests in {release} end", replace(world, gateway=replace(gateway, open=rest))


def _silence(world: World) -> Iterator[Transition]:
    """A guard that does not report is unknown after a while."""
    for leader in world.leaders:
        for report in leader.reports:
            if not world.reaches(leader.journal.leader, report.node):
                rest = tuple(other for other in leader.reports if other != report)
                yield f"{report.node} is silent", world.with_leader(replace(leader, reports=rest))


def _sampled(world: World) -> Iterator[Transition]:
    yield from _clock(world, lambda leader: replace(leader, sampled=True), "samples")


def _waited(world: World) -> Iterator[Transition]:
    yield from _clock(world, lambda leader: replace(leader, waited=True), "waiting")


def _clock(world: World, later: Callable[[Leader], Leader], name: str) -> Iterator[Transition]:
    for leader in world.leaders:
        passed = later(leader)
        if passed != leader and step(leader.journal, world.seen(passed)) is not None:
            yield f"time passes ({name})", world.with_leader(passed)


def _links(world: World) -> Iterator[Transition]:
    for node in sorted(world.cut):
        yield f"the link to {node} is back", replace(world, cut=world.cut - {node})
    if world.gateway.stalled:
        yield "HAProxy answers again", replace(world, gateway=replace(world.gateway, stalled=False))


def _follow(world: World, machine: Machine, effect: FollowerEffect) -> World:
    """Execute one effect of a guard."""
    checked = laws.following(world, machine, effect)
    written = replace(machine, record=machine.record.after(effect, BOOT))
    return checked.with_machine(_changed(written, effect))


def _changed(machine: Machine, effect: FollowerEffect) -> Machine:
    """What a guard does to its containers, and what its process remembers."""
    match effect:
        case act.MarkStart(container=container) | act.MarkRestart(container=container):
            problems = tuple(item for item in machine.problems if item[0] != container)
            return replace(machine, pending=container, problems=problems, halted=machine.halted - {container})
        case act.CreateEngine(rank=rank):
            return _created(machine, rank)
        case act.StartEngine(container=container):
            return _started(machine, container)
        case act.StopEngine(container=container):
            stopped = replace(machine, halted=machine.halted | {container})
            return stopped.holding(replace(machine.there(container), health=Health.STOPPED))
        case act.ProveEngine(container=container, key=key):
            return _proven(machine, container, key)
        case _:
            return machine


def _created(machine: Machine, rank: RankSpec) -> Machine:
    if machine.full:
        return replace(machine, problems=(*machine.problems, (rank.container, "no space left on device")))
    release, _, turns = rank.spec.partition(" ")
    return machine.holding(Engine(rank.container, release, rank.claim_gib, turns=Health(turns)))


def _started(machine: Machine, container: str) -> Machine:
    key = machine.record.key(container)
    started = replace(machine.there(container), health=Health.LOADING, key=key, by_hand=False)
    proofs = tuple(item for item in machine.proofs if item[0] != container)
    return replace(machine.holding(started), pending="", proofs=proofs)


def _proven(machine: Machine, container: str, key: str) -> Machine:
    answer = Answer.YES if machine.there(container).health is Health.GOOD else Answer.NO
    others = tuple(item for item in machine.proofs if item[0] != container)
    return replace(machine, proofs=(*others, (container, key, answer)))
