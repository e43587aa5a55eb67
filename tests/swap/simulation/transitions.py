"""What happens by itself. The first transition that is possible is the next one, so a run without faults is fair."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparkops.names import Slot
from sparkops.swap import effects as act
from sparkops.swap.effects import LeaderEffect
from sparkops.swap.fleet_state import GatewayView
from sparkops.swap.journal import Journal
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Deployment
from tests.swap.simulation import laws
from tests.swap.simulation.faults import ended
from tests.swap.simulation.guards import asking, guarding, stopped, watching
from tests.swap.simulation.messages import reporting, sending, silence
from tests.swap.simulation.sharing import by_identity, replace, shared
from tests.swap.simulation.states import one_leader, one_machine
from tests.swap.simulation.views import Health, Places
from tests.swap.simulation.world import ROOM, Engine, Gateway, Leader, Machine, Transition, World, fleet, site_of


def enabled(world: World) -> Iterator[Transition]:
    """Every transition that is possible now, in the order of a fair schedule."""
    for source in (
        guarding,
        _others,
        sending,
        reporting,
        asking,
        _acknowledged,
        _leaders,
        _engines,
        _streams,
        silence,
        watching,
        _sampled,
        ended,
        _waited,
        _failed,
    ):
        yield from source(world)


def lasting(world: World) -> Iterator[Transition]:
    """What happens while the causes of faults last: every other transition."""
    causes = {label for label, _ in ended(world)}
    return (transition for transition in enabled(world) if transition[0] not in causes)


def following(world: World) -> Transition | None:
    """The next transition of the fair schedule."""
    return next(enabled(world), None)


def _acknowledged(world: World) -> Iterator[Transition]:
    """An intent counts once another guard has its revision on disk."""
    leader = world.leader
    copies = [report.revision for report in leader.reports if report.node != leader.journal.leader]
    for intent, revision in world.unacknowledged:
        if any(copy >= revision for copy in copies) and leader.journal.outcome(intent):
            rest = tuple(known for known in world.unacknowledged if known != (intent, revision))
            yield f"{intent} counts", replace(world, unacknowledged=rest, acknowledged=(*world.acknowledged, intent))


def _leaders(world: World) -> Iterator[Transition]:
    for leader in world.leading:
        if world.machine(leader.journal.leader).lost:
            continue
        effect = decided(leader, world.view(leader))
        in_vain = world.gateway.refusing and effect == leader.tried
        if effect and not in_vain:
            yield f"leader: {effect}", lead(world, leader, effect)


@by_identity
def decided(leader: Leader, view: GatewayView | None) -> LeaderEffect | None:
    return step(leader.journal, fleet(leader, view))


def lead(world: World, leader: Leader, effect: LeaderEffect) -> World:
    """Execute one effect of a leader."""
    checked = laws.leading(world, leader, effect)
    gateway = checked.gateway
    match effect:
        case act.WriteJournal(journal=journal):
            return checked.with_leader(written(leader, journal))
        case _ if gateway.refusing:
            return checked.with_leader(one_leader(replace(leader, tried=effect, failing=False)))
        case act.PointSlot(deployment=deployment):
            moved = pointed(world, gateway, deployment)
        case act.SwitchTraffic(deployment=deployment, hold=hold):
            to, held = deployment.slot if deployment else None, hold.mark if hold else ""
            moved = switched(world, gateway, to, held)
            moved = replace(moved, old=old_switched(world, gateway.old, to, held)) if gateway.old else moved
        case act.CutRequests(deployment=deployment, left=True):
            slot = deployment.slot
            moved = gateway.each(lambda worker: replace(worker, left=others_left(worker, slot)))
        case act.CutRequests(deployment=deployment):  # `end_sessions` in program/haproxy.py: in every worker
            moved = gateway.each(lambda worker: without_requests(worker, deployment.slot))
    waits = (moved.active, moved.slots) == (gateway.active, gateway.slots)  # a new hold moves nothing
    after = replace(leader, waited=waits and leader.waited, tried=None, failing=False)
    return replace(checked, gateway=moved).with_leader(one_leader(after))


def pointed(world: World, gateway: Gateway, deployment: Deployment) -> Gateway:
    """The gateway with another deployment in a slot: in the current worker only (`set_servers` in program/haproxy.py).

    If the slot has the traffic, the replicas that it loses finish their requests, and an old worker sends new ones
    through the waiting room, as after a switch.
    """
    slots = {**dict(gateway.slots), deployment.slot: site_of(deployment)}
    moved = replace(gateway, slots=shared(tuple(sorted(slots.items()))))
    if gateway.active is not deployment.slot:
        return moved
    gone = [places for places in gateway.site(deployment.slot)[1] if places not in site_of(deployment)[1]]
    alive = {(machine.name, engine.container) for machine, engine in world.engines() if engine.running}
    finish = {(deployment.slot, places) for places in gone if alive.issuperset(places)}
    parted = moved.each(lambda worker: replace(worker, left=tuple(sorted({*worker.left, *finish}))))
    old = replace(parted.old, active=None, held=ROOM) if parted.old else None
    return replace(parted, old=old)


def others_left(worker: Gateway, slot: Slot) -> tuple[tuple[Slot, Places], ...]:
    return tuple(item for item in worker.left if item[0] is not slot)


def switched(world: World, worker: Gateway, to: Slot | None, held: str) -> Gateway:
    """A worker with another row of the map. What it has sent to the former slot goes on there."""
    served = {worker.active} if world.serves(worker.active) is Answer.YES else set()
    open_ = tuple(sorted(slot for slot in {*worker.open, *served} if slot and slot is not to))
    return replace(worker, active=to, held=held, open=open_)


def old_switched(world: World, old: Gateway, to: Slot | None, held: str) -> Gateway:
    """An old worker after a switch: `give` in program/__main__.py refuses its requests, or makes them wait."""
    return switched(world, old, None, ROOM if to or held else "")


def without_requests(worker: Gateway, slot: Slot) -> Gateway:
    return replace(worker, open=tuple(other for other in worker.open if other is not slot))


@by_identity
def written(leader: Leader, journal: Journal) -> Leader:
    """A journal on disk; the clocks of a phase start with it."""
    old, new = leader.journal.swap, journal.swap
    same = bool(old and new) and (old and old.phase, old and old.key) == (new and new.phase, new and new.key)
    return one_leader(
        replace(
            leader,
            journal=shared(journal),
            sampled=same and leader.sampled,
            waited=same and leader.waited,
            rested=journal.restarts <= leader.journal.restarts and leader.rested,
            tried=None,
            failing=False,
        )
    )


def _engines(world: World) -> Iterator[Transition]:
    for machine in world.machines:
        if machine.other_loads and machine.other and not machine.lost:
            yield f"the other engine on {machine.name} is good", _with_other(world, machine, machine.other, Health.GOOD)
    for machine, engine in world.engines():
        if machine.lost:
            continue
        if engine.ending:
            yield f"{engine.container} has stopped", world.with_machine(stopped(machine, engine.container))
        if engine.ending or engine.health is not Health.LOADING:
            continue
        if engine.turns is not Health.LOADING and _joined(world, engine):
            loaded = replace(engine, health=engine.turns)
            yield f"{engine.container} is {engine.turns}", world.with_machine(machine.holding(loaded))
        elif _stuck(world, engine) and engine.container not in dict(machine.problems):
            stalled = replace(machine, problems=(*machine.problems, (engine.container, "stalled")))
            yield f"{engine.container} stalls", world.with_machine(stalled)  # its guard watches the load


def _others(world: World) -> Iterator[Transition]:
    """The guard starts the promoted engine of another service, which it names after this one: it loads alone."""
    for machine in world.machines:
        other = machine.other
        if other is None or machine.lost or machine.mute or machine.refusing or machine.leased:
            continue
        loads = machine.pending or any(engine.health is Health.LOADING for engine in machine.engines)
        if not other.running and not loads and machine.free >= other.claim:
            yield f"the other engine on {machine.name} starts", _with_other(world, machine, other, Health.LOADING)


def _with_other(world: World, machine: Machine, other: Engine, health: Health) -> World:
    return world.with_machine(one_machine(replace(machine, other=replace(other, health=health))))


def _stuck(world: World, engine: Engine) -> bool:
    """Whether a load never ends: by itself, or since a rank that it waits for will not join."""
    ranks = world.siblings(engine)
    return engine.turns is Health.LOADING or not any(other.health is Health.LOADING for other in ranks)


def _joined(world: World, engine: Engine) -> bool:
    """Rank 0 of several is ready once every rank runs under the same start."""
    if not engine.container.endswith("-r0"):
        return True
    return all(other.health is Health.GOOD and other.key == engine.key for other in world.siblings(engine))


def _streams(world: World) -> Iterator[Transition]:
    gateway = world.gateway
    for slot in gateway.open:
        yield f"requests in {gateway.site(slot)[0]} end", replace(world, gateway=without_requests(gateway, slot))
    for item in gateway.left:
        rest = tuple(other for other in gateway.left if other != item)
        yield f"requests in {item[1][0][1]} end", replace(world, gateway=replace(gateway, left=rest))
    if old := gateway.old:
        for item in old.left:
            after = replace(gateway, old=replace(old, left=tuple(other for other in old.left if other != item)))
            yield f"requests in {item[1][0][1]} end in the old worker", replace(world, gateway=after)
        for slot in old.open:
            after = replace(gateway, old=without_requests(old, slot))
            yield f"requests in {old.site(slot)[0]} end in the old worker", replace(world, gateway=after)


def _sampled(world: World) -> Iterator[Transition]:
    yield from _clock(world, _sampling, "samples")


def _waited(world: World) -> Iterator[Transition]:
    yield from _clock(world, _waiting, "waiting")


def _failed(world: World) -> Iterator[Transition]:
    yield from _clock(world, _failing, "a change fails")


@by_identity
def _failing(leader: Leader) -> Leader:
    return one_leader(replace(leader, failing=True)) if leader.tried and not leader.failing else leader


@by_identity
def _sampling(leader: Leader) -> Leader:
    return leader if leader.sampled else one_leader(replace(leader, sampled=True))


@by_identity
def _waiting(leader: Leader) -> Leader:
    return leader if leader.waited else one_leader(replace(leader, waited=True))


def _clock(world: World, later: Callable[[Leader], Leader], name: str) -> Iterator[Transition]:
    for leader in world.leading:
        passed = later(leader)
        effect = decided(passed, world.view(passed)) if passed is not leader else None
        if effect is not None and effect != leader.tried:
            yield f"time passes ({name})", world.with_leader(passed)
