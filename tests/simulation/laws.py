"""The invariants of DESIGN section 10, checked at each transition and at the end of each fair run."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap import effects as act
from sparkops.swap.effects import FollowerEffect, LeaderEffect
from sparkops.swap.journal import Journal
from sparkops.swap.leader import needs_operator
from sparkops.swap.model import Answer, Deployment, Phase, RankSpec
from sparkops.swap.orders import Want, traffic
from tests.simulation.sharing import by_identity, replace
from tests.simulation.views import Health
from tests.simulation.world import CAPACITY, Leader, Machine, World


def broken(world: World, *wrongs: str) -> World:
    return replace(world, wrongs=(*world.wrongs, *wrongs))


def leading(world: World, leader: Leader, effect: LeaderEffect) -> World:
    """What a leader may not do."""
    wrongs: list[str] = []
    journal = leader.journal
    if not (set(journal.peers) <= journal.without or leader.met & set(journal.peers)):
        wrongs.append("4: a leader acts before a peer has confirmed it")
    match effect:
        case act.SwitchTraffic(deployment=to):
            wrongs += _switching(world, leader, to)
        case act.PointSlot(deployment=deployment):
            current = dict(world.gateway.slots).get(deployment.slot)
            if current is not None and current == world.gateway.traffic:
                wrongs.append(f"2: the slot of {current} is changed while it has the traffic")
        case act.WriteJournal(journal=new):
            wrongs += _writing(world, leader, new)
        case _:
            pass
    return broken(world, *wrongs) if wrongs else world


def _switching(world: World, leader: Leader, to: Deployment | None) -> Iterator[str]:
    current = world.gateway.traffic
    if to is None:
        if world.serves(current) is Answer.YES and not _may_go_offline(leader):
            yield f"5: {current} answers and loses the traffic"
        return
    if world.serves(to.release) is not Answer.YES:
        yield f"6: {to.release} gets requests and does not answer"
    if dict(world.gateway.slots).get(to.slot) != to.release:
        yield f"1: {to.release} is in no slot of the gateway"


def _writing(world: World, leader: Leader, new: Journal) -> Iterator[str]:
    old = leader.journal
    if (new.term, new.revision) <= (old.term, old.revision):
        yield "18: a journal went backwards"
    yield from _ending(world, leader, new)
    drained = old.swap and old.swap.phase is Phase.DRAIN and (not new.swap or new.swap.phase is not Phase.DRAIN)
    if drained and world.gateway.stalled and not new.stopping:
        yield "16: a drain ended that nothing could see"


def _ending(world: World, leader: Leader, new: Journal) -> Iterator[str]:
    """A phase that goes forward has done its work."""
    before, after = leader.journal.swap, new.swap
    if before is None or after is None or before.key != after.key or after.phase.order <= before.phase.order:
        return
    exists = {engine.container for _, engine in world.engines()}
    running = {engine.container for machine, engine in world.engines() if engine.running and not machine.lost}
    if before.phase is Phase.PREPARE and any(rank.container not in exists for rank in before.target.ranks):
        yield "12: the old release loses its traffic before every container of the new one exists"
    if before.phase is Phase.FREE and before.source and _names(before.source) & running - _restarted(world, leader):
        yield "12: the old release runs, and the new one may start"


def _restarted(world: World, leader: Leader) -> set[str]:
    """Containers that a boot record started after the report that they are at rest. Their guards stop them first."""
    resting = {item.container for report in leader.reports for item in report.engines if not item.state.running}
    records = [machine.record for machine in world.machines]
    return resting & {record.armed.container for record in records if record.restarts and record.armed}


def _starting_beside(world: World, machine: Machine, container: str) -> Iterator[str]:
    swap = world.leader.journal.swap
    if swap is None or swap.source is None or not swap.stops_source or container not in _names(swap.target):
        return
    old = _names(swap.source) - {container}
    if any(engine.running and engine.container in old for engine in machine.engines):
        yield f"12: {container} starts beside what it replaces"


def _names(deployment: Deployment) -> set[str]:
    return {rank.container for rank in deployment.ranks}


def _may_go_offline(leader: Leader) -> bool:
    journal = leader.journal
    return journal.stopping or (journal.swap is not None and journal.swap.stops_source)


def following(world: World, machine: Machine, effect: FollowerEffect) -> World:
    """What a guard may not do."""
    wrongs: list[str] = []
    match effect:
        case act.StartEngine(container=container):
            wrongs += (*_starting(world, machine, container), *_starting_beside(world, machine, container))
            key = (container, machine.record.key(container))
            if machine.record.restarts == 0 and key in world.starts:
                wrongs.append(f"18: {container} starts twice under {key[1]}")
            world = replace(world, starts=world.starts | {key})
        case act.MarkRestart(container=container):
            wrongs += _restarting(machine, container)
        case act.StopEngine(container=container):
            wrongs += _stopping(world, machine, container)
        case act.ArmBoot(rank=rank):
            wrongs += _arming(world, machine, rank)
        case act.KeepCopy(journal=journal):
            if journal.term < machine.record.term:
                wrongs.append("18: a guard follows an older term")
        case _:
            pass
    return broken(world, *wrongs) if wrongs else world


def _restarting(machine: Machine, container: str) -> Iterator[str]:
    """The boot record restarts what failed, and nothing that somebody has stopped."""
    engine = machine.engine(container)
    if engine is not None and engine.by_hand:
        yield f"3: {container} was stopped by hand and starts again"
    if container in machine.halted:
        yield f"3: {container} was stopped by an order and starts by itself"
    if machine.order and any(
        rank.rank.container == container and rank.want is Want.STOPPED for rank in machine.order.ranks
    ):
        yield f"5: {container} starts against its order"


def _arming(world: World, machine: Machine, rank: RankSpec | None) -> Iterator[str]:
    """The release that has the traffic starts after a boot, unless another one that answers takes its place."""
    armed, gateway = machine.record.armed, world.gateway
    engine = machine.engine(armed.container) if armed else None
    if engine is None or engine.release != gateway.traffic or engine.health is not Health.GOOD:
        return
    if rank is None and not world.leader.journal.stopping and not world.machine(gateway.node).lost:
        yield f"5: {engine.container} has the traffic and would stay down after a boot"


def _starting(world: World, machine: Machine, container: str) -> list[str]:
    engine = machine.engine(container)
    if engine is None:
        return [f"{container} starts and does not exist"]
    wrongs = []
    if engine.running:
        wrongs.append(f"{container} starts and runs already")
    elif machine.free < engine.claim:
        wrongs.append(f"9: {container} does not fit on {machine.name}")
    if any(other.health is Health.LOADING for other in machine.engines):
        wrongs.append(f"9: two engines load on {machine.name}")
    ranks = [other for _, other in world.engines() if other.release == engine.release and other != engine]
    if any(other.running and other.key != machine.record.key(container) for other in ranks):
        wrongs.append(f"15: {container} starts beside ranks of another start")
    return wrongs


def _stopping(world: World, machine: Machine, container: str) -> list[str]:
    engine, gateway = machine.engine(container), world.gateway
    if engine is None or engine.release != gateway.traffic:
        served = engine is not None and engine.release in gateway.open and engine.health is Health.GOOD
        return [f"3: {container} stops with requests in progress"] if served and not world.touched else []
    given_up = world.leader.journal.stopping or world.machine(gateway.node).lost
    if world.serves(engine.release) is Answer.YES and not given_up:
        return [f"5: {container} stops and has the traffic"]
    return []


def standing(world: World) -> list[str]:
    """What must hold in every state."""
    wrongs = [wrong for machine in world.machines for wrong in _memory(machine)]
    journal, gateway = world.leader.journal, world.gateway
    offline = journal.stopping or journal.active is None or (journal.swap is not None and journal.swap.stops_source)
    if not world.touched and not offline and world.serves(gateway.traffic) is not Answer.YES:
        wrongs.append("3: requests fail and no fault has hit their path")
    return wrongs


@by_identity
def _memory(machine: Machine) -> list[str]:
    wrongs = [f"9: {machine.name} is short of memory"] if machine.free < 0 else []
    armed = machine.record.armed
    if armed is not None and armed.claim_gib > CAPACITY:
        wrongs.append(f"9: {machine.name} cannot start what its boot record names")
    return wrongs


def settled(world: World) -> list[str]:
    """What must hold once nothing more happens."""
    journal, gateway = world.leader.journal, world.gateway
    if world.machine(journal.leader).lost:
        return []  # an operator rebuilds the gateway; scenarios.py does so
    wrongs = [
        f"17: intent {known} was acknowledged and is forgotten"
        for known in world.acknowledged
        if not journal.outcome(known)
    ]
    serving = traffic(journal)
    if needs_operator(journal, world.seen(world.leader)):
        return wrongs
    if journal.swap and journal.swap.automatic:
        wrongs.append(f"8: the swap rests in phase '{journal.swap.phase}'")
    if gateway.traffic != (serving.release if serving else ""):
        wrongs.append(f"8: the gateway sends requests to '{gateway.traffic}'")
    if serving and world.serves(serving.release) is not Answer.YES:
        wrongs.append(f"8: {serving.release} has the traffic and does not answer")
    if journal.swap is None:
        wrongs += _at_rest(world)
    return wrongs


def _at_rest(world: World) -> list[str]:
    active = world.leader.journal.active
    mine = {rank.container for rank in active.ranks} if active else set()
    wrongs = []
    for machine in world.machines:
        if machine.lost:
            continue
        armed = machine.record.armed
        expected = {rank.container for rank in active.on(machine.name)} if active else set()
        if {armed.container if armed else ""} - {""} != expected:
            wrongs.append(f"8: {machine.name} would start {armed.container if armed else 'nothing'} after a boot")
        wrongs += [
            f"8: {engine.container} still runs"
            for engine in machine.engines
            if engine.running and engine.container not in mine
        ]
    return wrongs
