"""The numbered invariants of a swap, checked at each transition and at the end of each fair run."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap import effects as act
from sparkops.swap.effects import FollowerEffect, LeaderEffect, RequestHold
from sparkops.swap.journal import RESTARTS, Journal, Swap, present
from sparkops.swap.leader import needs_operator
from sparkops.swap.model import Answer, Deployment, Phase, RankSpec
from sparkops.swap.orders import Want, traffic
from tests.swap.simulation.journal_laws import leaves_out, writing
from tests.swap.simulation.sharing import by_identity, replace
from tests.swap.simulation.views import Health, Places
from tests.swap.simulation.world import CAPACITY, CORDON, ENDED, Engine, Gateway, Leader, Machine, World, site_of


def broken(world: World, *wrongs: str) -> World:
    return replace(world, wrongs=(*world.wrongs, *wrongs))


def leading(world: World, leader: Leader, effect: LeaderEffect) -> World:
    """What a leader may not do."""
    wrongs: list[str] = []
    if not _confirmed(leader):
        wrongs.append("4: a leader acts before a peer has confirmed it")
    match effect:
        case act.SwitchTraffic(deployment=to, hold=hold):
            wrongs += (*_switching(world, leader, to), *_holding(leader, to, hold))
        case act.PointSlot(deployment=deployment):
            wrongs += _pointing(world, deployment)
        case act.WriteJournal(journal=new):
            wrongs += _writing(world, leader, new)
            world = replace(world, touched=True) if leaves_out(leader, new) else world  # a node is silent
        case act.CutRequests(deployment=deployment, left=left) if not leader.sampled and (
            _left_alive(world, deployment) if left else _alive(world, deployment)
        ):
            wrongs.append("3: requests are cut before their time to end has passed")
        case _:
            pass
    return broken(world, *wrongs) if wrongs else world


def _pointing(world: World, to: Deployment) -> Iterator[str]:
    """The slot with the traffic keeps replicas that serve; what it gets besides must answer through the gateway."""
    gateway = world.gateway
    if gateway.active is not to.slot or not gateway.traffic:
        return
    before, after = {*gateway.site(to.slot)[1]}, {*site_of(to)[1]}
    if not before & after:
        yield f"2: the slot of {gateway.traffic} is changed while it has the traffic"
    serve_on = any(_replica_serves(world, places) for places in after & before)
    if not serve_on and not world.touched and _replicas_serve(world):
        yield f"5: no replica of {gateway.traffic} serves on"
    coming = after - before if world.leader.journal.swap else set[Places]()  # HAProxy checks each before requests
    if coming and not any(_replica_serves(world, places) for places in coming):  # one answers for all that come at once
        yield f"6: {' '.join(sorted(places[0][1] for places in coming))} gets requests and does not answer"
    for places in coming:
        if any(world.machine(node).existing(container).ending for node, container in places):
            yield f"5: {places[0][1]} gets requests and is about to end"


def _replica_serves(world: World, places: Places) -> bool:
    machines = [(world.machine(node), container) for node, container in places]
    reached = all(world.reaches(world.gateway.node, machine.name) for machine, _ in machines)
    engines = [machine.engine(container) for machine, container in machines]
    return reached and all(engine is not None and engine.health is Health.GOOD for engine in engines)


def _replicas_serve(world: World) -> int:
    """The number of replicas with the traffic that answer."""
    return sum(_replica_serves(world, places) for places in world.gateway.site(world.gateway.active)[1])


def _left_alive(world: World, rest: Deployment) -> bool:
    """Whether a request in a replica that a slot has lost may still end well. One that restarts has failed."""
    swap = world.leader.journal.swap
    return any(_replica_serves(world, places) for slot, places in world.gateway.left if slot is rest.slot) and not (
        swap and swap.restarts
    )


def _alive(world: World, deployment: Deployment) -> bool:
    """Whether a request in a release may still end well."""
    engines = ((machine.name, engine) for machine, engine in world.engines())
    alive = {(node, item.container) for node, item in engines if item.running and item.health is not Health.HUNG}
    return _places(deployment) <= alive


def _confirmed(leader: Leader) -> bool:
    peers = set(leader.journal.peers)
    return peers <= leader.journal.without or bool(leader.met & peers)


def _switching(world: World, leader: Leader, to: Deployment | None) -> Iterator[str]:
    if to is None:
        if world.serves(world.gateway.active) is Answer.YES and not _may_go_offline(leader):
            yield f"5: {world.gateway.traffic} answers and loses the traffic"
        return
    if any(
        engine.ending
        and not _left_out(leader.journal, machine.name, engine.container)
        and world.gateway.leads_to(machine.name, engine.container) == [to.slot]
        for machine, engine in world.engines()
    ):
        yield f"5: {to.release} gets requests and is about to end"
    if world.serves(to.slot) is not Answer.YES and not _given_back(world, leader, to):
        yield f"6: {to.release} gets requests and does not answer"
    if world.gateway.site(to.slot) != site_of(to):
        yield f"1: {to.release} is in no slot of the gateway"


def _left_out(journal: Journal, node: str, container: str) -> bool:
    """Whether a restart goes on without this engine: its guard, silent until then, may just follow an earlier order."""
    swap = journal.swap
    return bool(
        swap and swap.restarts and any((node, container) == rank.place for item in swap.kept for rank in item.ranks)
    )


def _given_back(world: World, leader: Leader, to: Deployment) -> bool:
    """Whether a rebuilt gateway gives the promoted release back its requests, and a short question gets an answer.

    It answers nonsense, as before the rebuild, and no requests at all would be no better; the watch reports it. The old
    release is better, if it answers and the leader has that report already.
    """
    journal, swap = leader.journal, leader.journal.swap
    rebuilt = journal.term > 1 and world.gateway.active is None and (swap is None or swap.phase is not Phase.SWITCH)
    if not rebuilt or to != journal.active or world.answers(to.slot) is not Answer.YES:
        return False
    other = swap.source if swap and swap.target == to and not swap.reverting and not swap.stops_source else None
    return other is None or world.runs(other) is not Answer.YES or not _reported_garbled(leader, to)


def _reported_garbled(leader: Leader, deployment: Deployment) -> bool:
    reports = {report.node: report for report in leader.reports if report.follows(leader.journal)}
    return any(reports[rank.node].engine(rank.container).garbled for rank in deployment.heads if rank.node in reports)


def _holding(leader: Leader, to: Deployment | None, hold: RequestHold | None) -> Iterator[str]:
    """Requests wait for a start that is predicted and may still come, and for nothing else."""
    journal, swap = leader.journal, leader.journal.swap
    replaces = swap is not None and swap.stops_source and not journal.stopping and not journal.trouble
    if hold and (to is not None or not replaces):
        yield "4: requests wait for a release that does not start"
    if to is None and replaces and not hold:
        yield "4: requests get 503 and their release is about to start"
    if hold and swap and hold.mark.rstrip("+") != swap.key:
        yield "4: requests wait for an earlier start"


def _writing(world: World, leader: Leader, new: Journal) -> Iterator[str]:
    old = leader.journal
    if new.position <= old.position:
        yield "18: a journal went backwards"
    yield from _ending(world, leader, new)
    yield from writing(world, leader, new)
    drained = old.swap and old.swap.phase is Phase.DRAIN and (not new.swap or new.swap.phase is not Phase.DRAIN)
    if drained and world.gateway.stalled and not new.stopping:
        yield "16: a drain ended that nothing could see"


def _ending(world: World, leader: Leader, new: Journal) -> Iterator[str]:
    """A phase that goes forward has done its work."""
    before, after = leader.journal.swap, new.swap
    if before is None or after is None or before.key != after.key or after.phase.order <= before.phase.order:
        return
    exists = {(machine.name, engine.container) for machine, engine in world.engines()}
    exists |= {
        (report.node, engine.container) for report in leader.reports for engine in report.engines
    }  # until removed
    alive = [(machine, engine) for machine, engine in world.engines() if engine.running and not machine.lost]
    running = {(machine.name, engine.container) for machine, engine in alive}
    if before.phase is Phase.PREPARE and _places(before.coming) - exists:
        yield "12: the old release loses its traffic before every container of the new one exists"
    reported = {report.node for report in leader.reports if report.lease == CORDON}
    for place in _places(before.coming) - running if before.phase is Phase.PREPARE else ():
        if place[0] in reported and world.machine(place[0]).cordoned:
            yield f"20: {before.target.release} may start on {place[0]}, which is cordoned"
    needed = {node for node, _ in _places(before.coming)}
    still = _places(before.leaving) & running - _restarted(world, leader) if before.leaving else set()
    if before.phase is Phase.FREE and {node for node, _ in still} & needed:
        yield "12: the old release runs on a node of the new one, which may start"
    served = {places for places in world.gateway.site(world.gateway.active)[1] if world.gateway.active}
    stopped = {*site_of(before.leaving)[1]} if before.leaving else set()
    if before.phase is Phase.FREE and served & stopped:
        yield "4: the old release was stopped before its traffic"


def _restarted(world: World, leader: Leader) -> set[tuple[str, str]]:
    """Containers that a boot record started after the report that they are at rest. Their guards stop them first."""
    reported = ((report.node, engine) for report in leader.reports for engine in report.engines)
    resting = {(node, engine.container) for node, engine in reported if not engine.state.running}
    records = [machine.record for machine in world.machines]
    return resting & {record.armed.place for record in records if record.restarts and record.armed}


def _starting_beside(world: World, machine: Machine, container: str) -> Iterator[str]:
    swap = world.leader.journal.swap
    place = (machine.name, container)
    if swap is None or swap.leaving is None or not swap.stops_source or place not in _places(swap.coming):
        return
    old = _places(swap.leaving) - {place}
    if any(engine.running and (machine.name, engine.container) in old for engine in machine.engines):
        yield f"12: {container} starts beside what it replaces"


def _places(deployment: Deployment) -> set[tuple[str, str]]:
    return {rank.place for rank in deployment.ranks}


def _may_go_offline(leader: Leader) -> bool:
    journal = leader.journal
    return journal.stopping or (journal.swap is not None and journal.swap.stops_source)


def following(world: World, machine: Machine, effect: FollowerEffect) -> World:
    """What a guard may not do."""
    wrongs = _unkept(machine, effect)
    match effect:
        case act.StartEngine(container=container) if not (machine.refusing or machine.mute):
            wrongs += (*_starting(world, machine, container), *_starting_beside(world, machine, container))
            key = (container, machine.record.key(container))
            if machine.record.restarts == 0 and key in world.starts:
                wrongs.append(f"18: {container} starts twice under {key[1]}")
            world = replace(world, starts=world.starts | {key})
        case act.MarkRestart(container=container):
            wrongs += _restarting(machine, container)
        case act.StopEngine(container=container):
            wrongs += (*_disarmed(machine, container), *_stopping(world, machine, container))
        case act.ArmBoot(rank=rank):
            wrongs += _arming(world, machine, rank)
        case act.KeepCopy(journal=journal):
            if journal.term < machine.record.term:
                wrongs.append("18: a guard follows an older term")
        case _:
            pass
    return broken(world, *wrongs) if wrongs else world


def _unkept(machine: Machine, effect: FollowerEffect) -> list[str]:
    """A journal is on disk before its order is followed. A start that is marked happens whatever the order."""
    if not machine.order or machine.record.copy == machine.order.journal:
        return []
    early = not isinstance(effect, act.KeepCopy | act.StartEngine)
    return [f"17: {machine.name} follows an order whose journal it has not kept"] if early else []


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
    journal, others = world.leader.journal, [other.record.armed for other in world.machines if other != machine]
    if armed and rank is None and journal.active and not journal.stopping and not any(others):
        yield "8: nothing would start after a loss of power"
    engine = machine.engine(armed.container) if armed else None
    if engine is None or not _has_traffic(world, machine, engine) or world.serves(gateway.active) is not Answer.YES:
        return
    if rank is None and not world.leader.journal.stopping and not world.machine(gateway.node).lost:
        yield f"5: {engine.container} has the traffic and would stay down after a boot"


def _has_traffic(world: World, machine: Machine, engine: Engine) -> bool:
    """Whether requests go to this engine."""
    return world.gateway.active in world.gateway.leads_to(machine.name, engine.container)


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
    ranks = world.siblings(engine)
    key = machine.record.key(container)
    if any(other.running and other.key != key for other in ranks):
        wrongs.append(f"15: {container} starts beside ranks of another start")
    marked = {item.pending for item in world.machines}  # such a start happens whatever the order
    if container.endswith("-r0") and any(
        (other.container, key) not in world.starts and other.container not in marked for other in ranks
    ):
        wrongs.append(f"12: {container} starts before its workers")
    return wrongs


def _disarmed(machine: Machine, container: str) -> Iterator[str]:
    """An order that takes a container out of the boot record does so before it stops it."""
    armed, ordered = machine.record.armed, machine.order and machine.order.armed
    if armed and ordered and armed.container == container and ordered.rank != armed:
        yield f"3: {container} stops and would start after a boot"


def _stopping(world: World, machine: Machine, container: str) -> list[str]:
    engine, gateway = machine.engine(container), world.gateway
    if engine is None or not _has_traffic(world, machine, engine):
        slots = [{*worker.leads_to(machine.name, container)} & {*worker.open} for worker in gateway.workers]
        left = any((machine.name, container) in places for worker in gateway.workers for _, places in worker.left)
        served = engine is not None and (any(slots) or left) and engine.health is Health.GOOD
        return [f"3: {container} stops with requests in progress"] if served and not world.touched else []
    journal = world.leader.journal
    given_up = journal.stopping or world.machine(gateway.node).lost
    others = (places for places in gateway.site(gateway.active)[1] if (machine.name, container) not in places)
    late = machine.journal != journal  # its guard did not reply while its replica was given up
    if late and (
        _left_out(journal, machine.name, container) or any(_replica_serves(world, places) for places in others)
    ):
        return []  # the others serve on, or start again
    if world.serves(gateway.active) is Answer.YES and not given_up:
        return [f"5: {container} stops and has the traffic"]
    if engine.health is Health.WRONG and not given_up:
        return [f"5: {container} has the traffic and stops since it answers nonsense"]
    return []


def low(world: World, machine: Machine) -> World:
    """An engine that is known to load is killed before its node hangs."""
    hangs = any(machine.loaded(engine) is Answer.NO for engine in machine.engines if engine.running)
    return broken(world, f"9: {machine.name} runs out of memory and hangs") if hangs else world


def relieving(world: World, machine: Machine, container: str) -> World:
    """A promoted engine that serves is not killed for memory. A replica that restarts does not serve without a rank."""
    armed, engine = machine.record.armed, machine.existing(container)
    restarts = machine.journal and machine.journal.swap and machine.journal.swap.restarts
    failed = restarts and any(other.health in (*ENDED, Health.HUNG) for other in world.siblings(engine))
    serves = engine.health in (Health.GOOD, Health.WRONG) and _has_traffic(world, machine, engine) and not failed
    if armed and armed.container == container and serves:
        return broken(world, f"5: {container} is promoted, has the traffic, and is killed for memory")
    return world


def standing(world: World) -> list[str]:
    """What must hold in every state."""
    wrongs = [wrong for machine in world.machines for wrong in _memory(machine)]
    journal, gateway = world.leader.journal, world.gateway
    swap = journal.swap
    offline = journal.stopping or journal.active is None or (swap is not None and swap.stops_source and not swap.kept)
    if not world.touched and not offline and world.serves(gateway.active) is not Answer.YES:
        wrongs.append("3: requests fail and no fault has hit their path")
    if swap and swap.kept and not world.touched and not journal.stopping and _replicas_serve(world) < _least(swap):
        wrongs.append("23: fewer replicas serve than may be missing at once")
    if gateway.active and gateway.held:
        wrongs.append("4: requests wait and a release has the traffic")
    return wrongs + _kept(gateway)


def _least(swap: Swap) -> int:
    """The replicas that serve during each step of a rolling update: as many as the new release says, or all but one.

    A restart takes no replica away that serves.
    """
    if swap.restarts:
        return 0
    goal, source = swap.goal or swap.target, present(swap.source)
    new = source if swap.reverting else goal
    return new.limits.least(min(len(source.replicas), len(goal.replicas)))


def _kept(gateway: Gateway) -> list[str]:
    """The next request of a kept connection finds what one on a new connection finds."""
    old = gateway.old
    if old is None or old.held:  # the waiting room sends its requests to the current worker
        return []
    same = not gateway.held and old.site(old.active) == gateway.site(gateway.active)
    return [] if same else [f"22: a kept connection leads to '{old.traffic}', a new one to '{gateway.traffic}'"]


@by_identity
def _memory(machine: Machine) -> list[str]:
    wrongs = [f"9: {machine.name} is short of memory"] if machine.free < 0 else []
    armed = machine.record.armed
    other = machine.other.claim if machine.other else 0.0
    if armed is not None and armed.claim_gib + other > CAPACITY:
        wrongs.append(f"9: {machine.name} cannot start what its boot records name")
    return wrongs


def settled(world: World) -> list[str]:
    """What must hold once nothing more happens."""
    journal, gateway = world.leader.journal, world.gateway
    if world.machine(journal.leader).lost:
        return []  # an operator rebuilds the gateway; scenarios.py does so
    wrongs = _forgotten(world)
    if gateway.stalled and journal.swap is None:
        return wrongs  # `status` reports the gateway itself
    serving = traffic(journal)
    if bool(needs_operator(journal, world.fleet(world.leader))) != _needs_operator(world):
        wrongs.append("8: it needs an operator and says nothing, or the reverse")
    if _needs_operator(world):
        return wrongs
    if journal.swap and journal.swap.automatic:
        wrongs.append(f"8: the swap rests in phase '{journal.swap.phase}'")
    wrongs += _served(world, serving)
    if journal.swap is None:
        wrongs += _at_rest(world)
    return wrongs


def _served(world: World, serving: Deployment | None) -> Iterator[str]:
    gateway = world.gateway
    unread = gateway.stalled or gateway.refusing
    if gateway.active != (serving.slot if serving else None) and not unread:
        yield f"8: the gateway sends requests to '{gateway.traffic}'"
    if serving and world.runs(serving) is not Answer.YES and not _unwatched(world, serving):
        yield f"8: {serving.release} has the traffic and does not answer"


def _unwatched(world: World, serving: Deployment) -> bool:
    """Whether a release answers nonsense that its watch cannot report yet, since Docker on its node does not reply.

    A short question gets an answer. The leader reports that it does not reach the guard.
    """
    mute = all(world.machine(rank.node).mute for rank in serving.heads)
    pointed = world.gateway.site(serving.slot) == site_of(serving)
    return mute and pointed and world.answers(serving.slot) is Answer.YES


def _forgotten(world: World) -> list[str]:
    """An intent survives the loss of one node, not of two."""
    if sum(machine.lost for machine in world.machines) > 1:
        return []
    unknown = [known for known in world.acknowledged if not world.leader.journal.outcome(known)]
    return [f"17: intent {known} was acknowledged and is forgotten" for known in unknown]


def live(world: World, *, intervened: bool) -> list[str]:
    """What must hold at the end of a run whose faults' causes are gone: a release serves, without an operator.

    `intervened`: whether a second operator took part, who may have stopped the service. What a fault took for good is
    excepted: a node, which an engine takes too that never ends its load, or the engine of the only release that could
    serve. A first deploy has no former release to keep:
    it may end at once with the reason, which its owner waits for.
    """
    journal, leader = world.leader.journal, world.leader
    lost = {machine.name for machine in world.machines if machine.lost}
    down = [machine for machine in world.machines if machine.other and not machine.other.running and not machine.lost]
    wrongs = [f"19: the other service's engine on {machine.name} is down" for machine in down]
    serving = traffic(journal)
    needed = journal.active or (journal.swap.target if journal.swap else None)
    if needed and len(needed.replicas) > 1:
        return [*wrongs, *_replicas_live(world, needed)]
    places = _places(needed) if needed else set()
    broken = {(machine.name, engine.container) for machine, engine in world.engines() if engine.broken}
    blocked = {machine.name for machine, engine in world.engines() if engine.broken and engine.health is Health.LOADING}
    unconfirmed = set(journal.peers) - journal.without <= lost and not _confirmed(leader)
    nodes = {node for node, _ in places}
    taken = unconfirmed or places & broken or lost & {world.gateway.node, *nodes} or blocked & nodes
    if taken or (needed and _too_large(world, needed)):
        return wrongs
    if why := needs_operator(journal, world.fleet(leader)):
        return [*wrongs, f"19: after faults that are gone, an operator is needed: {why}"]
    if serving is None:
        given_up = journal.term > 1 and journal.active is None and journal.swap is None  # its operator was told so
        stopped = intervened or journal.previous is None or given_up
        return wrongs if stopped else [*wrongs, "19: after faults that are gone, no release serves"]
    serves = world.runs(serving) is Answer.YES
    return wrongs if serves else [*wrongs, f"19: after faults that are gone, {serving.release} is down"]


def _replicas_live(world: World, needed: Deployment) -> Iterator[str]:
    """Each replica serves that no fault has taken for good, and no operator is needed if one is left."""
    journal, gateway = world.leader.journal, world.gateway
    lost = {machine.name for machine in world.machines if machine.lost}
    broken = {(machine.name, engine.container) for machine, engine in world.engines() if engine.broken}
    if gateway.node in lost or not _confirmed(world.leader):
        return
    left = [
        places
        for places in site_of(needed)[1]
        if not broken & {*places} and not any(node in lost or (node, "") in broken for node, _ in places)
    ]
    why = needs_operator(journal, world.fleet(world.leader))
    if left and why:
        yield f"19: after faults that are gone, an operator is needed: {why}"
    served = {*gateway.site(gateway.active)[1]} if gateway.active else set()
    down = [places[0][1] for places in left if places not in served or not _replica_serves(world, places)]
    within = journal.restarts < RESTARTS  # else it is restarted within the hour, which no exploration waits for
    if down and within and traffic(journal) and not why:
        yield f"24: after faults that are gone, a replica is down: {' '.join(down)}"


def _too_large(world: World, release: Deployment) -> bool:
    """Whether a release never fits beside another service's engine: no plan would choose its node."""
    others = {machine.name: machine.other.claim for machine in world.machines if machine.other}
    return any(rank.claim_gib + others.get(rank.node, 0.0) > CAPACITY for rank in release.ranks)


def _needs_operator(world: World) -> bool:
    """Return whether the fleet cannot continue: a release that answers, with no swap left, needs nobody."""
    journal = world.leader.journal
    all_serve = _replicas_serve(world) == len(journal.active.replicas) if journal.active else False
    serves = journal.swap is None and not journal.stopping and all_serve
    return not _confirmed(world.leader) or (bool(journal.trouble) and not serves)


def _at_rest(world: World) -> list[str]:
    active = world.leader.journal.active
    wrongs = ["4: requests wait and nothing starts"] if world.gateway.held else []
    for machine in world.machines:
        if machine.lost or machine.mute or machine.name in world.cut:
            continue
        armed = machine.record.armed
        expected = {rank.container for rank in active.on(machine.name)} if active else set()
        if {armed.container if armed else ""} - {""} != expected:
            wrongs.append(f"8: {machine.name} would start {armed.container if armed else 'nothing'} after a boot")
        wrongs += [
            f"8: {engine.container} still runs"
            for engine in machine.engines
            if engine.running and engine.container not in expected
        ]
    return wrongs
