"""What goes wrong. Each fault is a transition that an exploration may take a bounded number of times."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap.effects import CreateEngine, MarkRestart, MarkStart, StartEngine
from sparkops.swap.model import Phase
from sparkops.swap.orders import load_ahead
from tests.swap.simulation import laws
from tests.swap.simulation.guards import acts, created, lost, reconciled, started, stopped
from tests.swap.simulation.messages import deliver
from tests.swap.simulation.sharing import by_identity, replace, shared
from tests.swap.simulation.states import one_leader, one_machine
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import EARLIER, Engine, Gateway, Leader, Machine, Transition, World


def faults(world: World) -> Iterator[Transition]:
    """Every fault that changes this state."""
    for machine in world.machines:
        yield from _node(world, machine)
        yield from _disk(world, machine)
        yield from _device(world, machine)
    yield from _power(world)
    yield from _paths(world)


def distinct(world: World) -> Iterator[Transition]:
    """The faults that do not commute with the next transition; the others are taken after it, and lead to the same.

    While a guard acts, only a fault of its own node can come between two of its effects: each effect reads and changes
    one node, so a fault elsewhere leaves it the next one and finds the same world after it. Links and HAProxy are read
    by leaders and by what passes between them and guards. A full disk is read where a container is created.
    `test_levels` compares this with `faults`.
    """
    acting, effect = acts(world)
    yield from _power(world)
    if acting is None:
        for machine in world.machines:
            yield from _node(world, machine)
        yield from _paths(world)
        return
    yield from _node(world, acting)
    if isinstance(effect, CreateEngine):
        yield from _disk(world, acting)
    if isinstance(effect, StartEngine):
        yield from _device(world, acting)


def exhausted(world: World) -> World:
    """A world without faults to come: earlier orders, which only a link would deliver again, make no difference."""
    return replace(world, machines=tuple([_without_late(machine) for machine in world.machines]))


@by_identity
def _without_late(machine: Machine) -> Machine:
    return machine if machine.late is None else one_machine(replace(machine, late=None))


def _node(world: World, machine: Machine) -> Iterator[Transition]:
    if machine.lost:  # its operator may have given it up meanwhile
        yield f"return of {machine.name}", _booted(world, machine)
        return
    yield f"crash of the guard on {machine.name}", _guard(world, machine)
    yield f"reboot of {machine.name}", _reboot(world, machine)
    yield f"loss of {machine.name}", _lose(world, machine)
    yield from _engines(world, machine)
    yield from _relieved(world, machine, f"memory of {machine.name} runs out")
    yield from _relieved(
        _guard(world, machine), _fresh(machine), f"memory of {machine.name} runs out as its guard restarts"
    )
    if pruned := _pruned(machine):
        removed = {engine.container for engine in machine.engines} - {engine.container for engine in pruned.engines}
        starts = frozenset(start for start in world.starts if start[0] not in removed)  # a new container has none
        after = replace(world.with_machine(pruned), starts=starts)
        yield f"docker container prune on {machine.name}", after
    if not machine.leased and grants(machine):
        yield f"a lease on {machine.name}", world.with_machine(one_machine(replace(machine, leased=True)))
    if not (machine.cordoned or (machine.journal and load_ahead(machine.journal, machine.name))):
        yield f"a cordon on {machine.name}", world.with_machine(one_machine(replace(machine, cordoned=True)))
    yield from _docker(world, machine)
    if machine.late is not None and machine.late != machine.order:
        yield f"a late order to {machine.name}", deliver(world, machine, machine.late)


@by_identity
def _pruned(machine: Machine) -> Machine | None:
    """The node without the containers that do not run; None if there are none."""
    kept = tuple(engine for engine in machine.engines if engine.running or engine.container == machine.pending)
    return one_machine(replace(machine, engines=kept)) if len(kept) < len(machine.engines) else None


def _disk(world: World, machine: Machine) -> Iterator[Transition]:
    if not machine.lost and not machine.full:
        yield f"full disk on {machine.name}", world.with_machine(_filled(machine))


def _device(world: World, machine: Machine) -> Iterator[Transition]:
    if not machine.lost and not machine.refusing:
        refusing = one_machine(replace(machine, refusing=True))
        yield f"Docker on {machine.name} refuses to start", world.with_machine(refusing)


def _docker(world: World, machine: Machine) -> Iterator[Transition]:
    """Docker replies to nothing for a while. What it was asked for last may have happened, and its guard knows not."""
    if machine.mute:
        return
    hangs = f"Docker on {machine.name} hangs"
    yield hangs, world.with_machine(_muted(machine))
    match effect := reconciled(machine):
        case StartEngine(container=container) if not machine.refusing:  # otherwise it cannot have happened
            happened = lost(started(machine, container), container)
            yield f"{hangs}: {effect}", laws.following(world, machine, effect).with_machine(_muted(happened))
        case CreateEngine(rank=rank):
            for after in (machine, created(machine, rank)):
                failed = replace(after, problems=(*machine.problems, (rank.container, "no reply")))
                label = f"{hangs}: {effect}, which {'fails' if after is machine else 'happens'}"
                yield label, world.with_machine(_muted(failed))
        case _:
            pass


@by_identity
def _muted(machine: Machine) -> Machine:
    return one_machine(replace(machine, mute=True))


@by_identity
def grants(machine: Machine) -> bool:
    """Whether the guard grants a lease: nothing loads, and nothing is about to load."""
    journal = machine.journal
    loads = machine.pending or any(engine.health is Health.LOADING for engine in machine.engines)
    begins = isinstance(reconciled(machine), MarkStart | MarkRestart)
    return not (machine.mute or loads or begins or (journal and load_ahead(journal, machine.name)))


def ended(world: World) -> Iterator[Transition]:
    """The end of the cause of each fault that does not last."""
    for node in sorted(world.cut):
        yield f"the link to {node} is back", replace(world, cut=world.cut - {node})
    for leader in world.leaders:
        if leader.away:
            yield f"{leader.journal.leader} reads its journal", world.with_leader(one_leader(Leader(leader.journal)))
    if world.gateway.stalled:
        yield "HAProxy answers again", replace(world, gateway=replace(world.gateway, stalled=False))
    if world.gateway.old and not (world.gateway.old.open or world.gateway.old.left):
        yield "the old worker of HAProxy ends", replace(world, gateway=replace(world.gateway, old=None))
    if world.gateway.refusing:
        yield "the gateway takes changes again", replace(world, gateway=replace(world.gateway, refusing=False))
    for machine in world.machines:
        for label, freed in _freed(machine):
            yield label, world.with_machine(freed)


def _freed(machine: Machine) -> Iterator[tuple[str, Machine]]:
    if machine.full:
        yield f"the disk of {machine.name} is freed", one_machine(replace(machine, full=False))
    if machine.refusing:
        yield f"Docker on {machine.name} starts again", one_machine(replace(machine, refusing=False))
    if machine.mute:
        yield f"Docker on {machine.name} replies again", one_machine(replace(machine, mute=False))
    if machine.leased:
        yield f"the lease on {machine.name} ends", one_machine(replace(machine, leased=False))
    if machine.cordoned:
        yield f"the cordon on {machine.name} ends", one_machine(replace(machine, cordoned=False))


def _paths(world: World) -> Iterator[Transition]:
    for machine in world.machines:
        if machine.name != world.gateway.node and machine.name not in world.cut and not machine.lost:
            cut = replace(world, cut=world.cut | {machine.name})
            yield f"cut link to {machine.name}", _touched(cut, machine)
    for leader in world.leading:
        if not world.machine(leader.journal.leader).lost:
            away = one_leader(Leader(leader.journal, away=True))
            yield f"{leader.journal.leader} cannot read its journal", world.with_leader(away)
    if not world.gateway.stalled:
        yield "HAProxy stalls", replace(world, gateway=replace(world.gateway, stalled=True))
    if not world.gateway.refusing:
        yield "the gateway refuses changes", replace(world, gateway=replace(world.gateway, refusing=True))
    yield from _reload(world)


def _reload(world: World) -> Iterator[Transition]:
    """Another service is added or forgotten, at any time (`replace` in program/loading.py): HAProxy starts a worker.

    It begins with the map and the servers of the old one, which keeps its requests and idle connections.
    """
    gateway = world.gateway
    if not (gateway.old or gateway.stalled or gateway.refusing or world.machine(gateway.node).lost):
        yield "HAProxy reloads", replace(world, gateway=replace(gateway, open=(), left=(), old=gateway))


@by_identity
def _fresh(machine: Machine) -> Machine:
    """What a guard's process forgets."""
    fresh = replace(machine, order=None, late=None, pending="", restarting=False, stopping="")
    unasked = frozenset(engine.container for engine in machine.engines if engine.running and _is_head(engine))
    forgotten = replace(fresh, unasked=unasked, found=(), proofs=(), problems=(), refused=frozenset(), leased=False)
    return one_machine(forgotten)


@by_identity
def _filled(machine: Machine) -> Machine:
    return one_machine(replace(machine, full=True))


@by_identity
def _ended(machine: Machine) -> Machine:
    """The node without a running engine."""
    engines = tuple(replace(engine, health=Health.STOPPED, ending=False) for engine in machine.engines)
    other = replace(machine.other, health=Health.STOPPED) if machine.other else None
    return one_machine(replace(_fresh(machine), engines=engines, other=other, unasked=frozenset()))


@by_identity
def _gone(machine: Machine) -> Machine:
    return one_machine(replace(_ended(machine), lost=True))


@by_identity
def _later(machine: Machine) -> Machine:
    """Its next boot. What was noted in the last one belongs to an earlier boot, however many there were."""
    record = replace(machine.record, boot=EARLIER)
    return one_machine(replace(machine, record=record, halted=frozenset(), mute=False, lost=False))


def _guard(world: World, machine: Machine) -> World:
    return _forget(world.with_machine(_fresh(machine)), machine.name)


def _forget(world: World, name: str) -> World:
    """The leader's process on this node forgets what it has seen, and keeps its journal."""
    leaders = tuple(_restarted(leader) if leader.journal.leader == name else leader for leader in world.leaders)
    return replace(world, leaders=leaders)


@by_identity
def _restarted(leader: Leader) -> Leader:
    return one_leader(Leader(leader.journal, away=leader.away))


def _touched(world: World, machine: Machine) -> World:
    """Note whether the fault hit what requests go through."""
    gateway = world.gateway
    sites = (worker.site(slot) for worker in gateway.workers for slot in (worker.active, *worker.open))
    path = {node for _, replicas in sites for places in replicas for node, _ in places}
    path |= {node for _, places in gateway.left for node, _ in places}
    return replace(world, touched=world.touched or machine.name in path | {world.gateway.node})


def _power(world: World) -> Iterator[Transition]:
    """All nodes lose power at once and boot: they stand on one strip."""
    after = world
    for machine in world.machines:
        after = _reboot(after, after.machine(machine.name)) if not machine.lost else after
    yield "power cut", after


def _reboot(world: World, machine: Machine) -> World:
    after = _touched(_forget(_booted(world, _ended(machine)), machine.name), machine)
    if machine.name == world.gateway.node:
        after = replace(after, gateway=replace(after.gateway, open=(), left=(), stalled=False, old=None))
    return replace(after, gateway=_without_dead(after))


def _booted(world: World, machine: Machine) -> World:
    """A new boot. The leaders' reports are of an earlier one."""
    leaders = tuple([_outdated(leader, machine.name) for leader in world.leaders])
    return replace(world.with_machine(_later(machine)), leaders=leaders)


@by_identity
def _outdated(leader: Leader, node: str) -> Leader:
    reports = tuple(
        shared(replace(report, boot=EARLIER)) if report.node == node else report for report in leader.reports
    )
    return one_leader(replace(leader, reports=reports))


def _lose(world: World, machine: Machine) -> World:
    gone = _forget(world.with_machine(_gone(machine)), machine.name)
    gateway = _without_dead(gone)
    kept = replace(gateway, old=None) if machine.name == gateway.node else gateway
    return replace(_touched(gone, machine), gateway=kept)


def _engines(world: World, machine: Machine) -> Iterator[Transition]:
    if machine.other and machine.other.running:
        other = replace(machine.other, health=Health.STOPPED)
        yield f"the other engine on {machine.name} ends", world.with_machine(one_machine(replace(machine, other=other)))
    for engine in machine.engines:
        if not engine.running:
            continue
        for health in (Health.STOPPED, Health.HUNG, *((Health.WRONG,) if _serves(world, machine, engine) else ())):
            hurt = _hurt(machine, engine, health)
            if hurt is not machine:
                after = _touched(world.with_machine(hurt), machine)
                yield f"{engine.container} is {health}", replace(after, gateway=_without_dead(after))
        if _bakes(world, machine, engine):
            taken = one_machine(stopped(machine, engine.container).holding(replace(engine, health=Health.TAKEN)))
            after = replace(world.with_machine(taken), touched=True)
            yield f"the port of {engine.container} is taken", replace(after, gateway=_without_dead(after))


def _serves(world: World, machine: Machine, engine: Engine) -> bool:
    """Whether an engine is rank 0 of the promoted release. Before, checks and bake judge what it answers."""
    journal = world.leader.journal
    heads = {rank.place for rank in journal.active.heads} if journal.active and not journal.unfinished else set()
    return (machine.name, engine.container) in heads and not engine.ending


def _bakes(world: World, machine: Machine, engine: Engine) -> bool:
    """Whether an engine is rank 0 of a release between switch and promotion.

    Before, its guard's checks judge it. At the promotion a guard starts a lone engine again, which ends the cause.
    """
    swap = world.leader.journal.swap
    if swap is None or swap.reverting or engine.ending:
        return False
    due = swap.phase is Phase.BAKE or (swap.phase is Phase.PROMOTE and swap.target.alone)
    return due and (machine.name, engine.container) in {rank.place for rank in swap.coming.heads}


def _relieved(world: World, machine: Machine, label: str) -> Iterator[Transition]:
    """The guard kills an engine, before the node hangs; nothing changes where none is due."""
    if due := relief(machine):
        after = _touched(laws.relieving(world, machine, due).with_machine(_killed(machine, due)), machine)
        yield f"{label}: {due} is killed", replace(after, gateway=_without_dead(after))
    elif (hung := laws.low(world, machine)) is not world:
        yield label, hung


@by_identity
def relief(machine: Machine) -> str:
    return next(machine.expendable(), "")


@by_identity
def _killed(machine: Machine, container: str) -> Machine:
    ended_machine = stopped(machine, container)
    others = tuple(item for item in ended_machine.problems if item[0] != container)
    return one_machine(replace(ended_machine, problems=(*others, (container, "killed"))))


def _is_head(engine: Engine) -> bool:
    return engine.container.endswith("-r0")


@by_identity
def _hurt(machine: Machine, engine: Engine, health: Health) -> Machine:
    """An engine ends, hangs or begins to answer nonsense; one that loads hangs by never being ready.

    A start ends the hang of an engine that has served. Nonsense lasts: what answers is not restarted for it.
    """
    if health is Health.STOPPED:
        return stopped(machine, engine.container)
    never = engine.health is Health.LOADING
    if never and health is Health.WRONG:
        return machine
    hurt = replace(engine, turns=Health.LOADING) if never else replace(engine, health=health)
    return machine if hurt == engine else one_machine(machine.holding(replace(hurt, broken=True)))


def _without_dead(world: World) -> Gateway:
    """Requests in progress in an engine that ended have ended too."""
    if not (world.gateway.counted or world.gateway.counted_left):
        return world.gateway
    alive = {(machine.name, engine.container) for machine, engine in world.engines() if engine.running}

    def lasting(worker: Gateway) -> Gateway:
        open_ = tuple(
            slot for slot in worker.open if any(alive.intersection(places) for places in worker.site(slot)[1])
        )
        return replace(worker, open=open_, left=tuple(item for item in worker.left if alive.issuperset(item[1])))

    return world.gateway.each(lasting)
