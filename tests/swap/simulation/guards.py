"""What guards do: their effects, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap import effects as act
from sparkops.swap.effects import FollowerEffect
from sparkops.swap.follower import reconcile
from sparkops.swap.model import Answer, RankSpec
from tests.swap.simulation import laws
from tests.swap.simulation.sharing import by_identity, replace
from tests.swap.simulation.states import one_machine
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import BOOT, DEAD, GARBLED, Engine, Machine, Transition, World, local


def acts(world: World) -> tuple[Machine | None, FollowerEffect | None]:
    """The guard whose effect is the next transition of the fair schedule, and the effect."""
    for machine in world.machines:
        if not machine.lost and (effect := reconciled(machine)):
            return machine, effect
    return None, None


@by_identity
def reconciled(machine: Machine) -> FollowerEffect | None:
    effect = reconcile(machine.order, local(machine))
    if isinstance(effect, act.KeepCopy | act.ArmBoot):
        return effect
    if machine.stopping or (machine.mute and not isinstance(effect, act.StartEngine)):
        return None
    return effect  # a start that was begun ends without a reply, too


def guarding(world: World) -> Iterator[Transition]:
    for machine in world.machines:
        if not machine.lost and (effect := reconciled(machine)):
            yield f"{machine.name}: {effect}", follow(world, machine, effect)


def follow(world: World, machine: Machine, effect: FollowerEffect) -> World:
    """Execute one effect of a guard."""
    return laws.following(world, machine, effect).with_machine(_executed(machine, effect))


@by_identity
def _executed(machine: Machine, effect: FollowerEffect) -> Machine:
    return one_machine(_changed(replace(machine, record=machine.record.after(effect, BOOT)), effect))


def _changed(machine: Machine, effect: FollowerEffect) -> Machine:
    """What a guard does to its containers, and what its process remembers."""
    match effect:
        case act.MarkStart(container=container) | act.MarkRestart(container=container):
            return replace(
                machine,
                pending=container,
                restarting=isinstance(effect, act.MarkRestart),
                problems=tuple(item for item in machine.problems if item[0] != container),
                refused=machine.refused - {container},
                halted=machine.halted - {container},
            )
        case act.CreateEngine(rank=rank):
            return created(machine, rank)
        case act.StartEngine(container=container):
            if machine.mute:
                return lost(machine, container)
            return _refused(machine, container) if machine.refusing else started(machine, container)
        case act.StopEngine(container=container):
            stopping = replace(machine, halted=machine.halted | {container}, stopping=container)
            return stopping.holding(replace(machine.existing(container), ending=True))
        case act.ProveEngine(container=container, key=key):
            return _proven(machine, container, key)
        case _:
            return machine


def created(machine: Machine, rank: RankSpec) -> Machine:
    if machine.full and rank == machine.record.armed:
        return replace(machine, refused=machine.refused | {rank.container})
    if machine.full:
        return replace(machine, problems=(*machine.problems, (rank.container, "no space left on device")))
    release, slot, turns = rank.spec.split(" ")
    made = machine.holding(Engine(rank.container, release, slot, rank.claim_gib, turns=Health(turns)))
    return replace(made, refused=made.refused - {rank.container})


def _refused(machine: Machine, container: str) -> Machine:
    """A start that Docker refused: it is none."""
    record = machine.record.refused() if machine.restarting else machine.record
    return lost(replace(machine, record=record), container)


def lost(machine: Machine, container: str) -> Machine:
    """A start that Docker did not reply to: it counts, and the guard learns later whether it happened."""
    return replace(machine, pending="", restarting=False, refused=machine.refused | {container})


def stopped(machine: Machine, container: str) -> Machine:
    """The end of an engine, and of the `docker stop` that waits for it."""
    engine = replace(machine.existing(container), health=Health.STOPPED, ending=False)
    waits = machine.stopping == container
    changes = {"stopping": "" if waits else machine.stopping, "unasked": machine.unasked - {container}}
    found = tuple(item for item in machine.found if item[0] != container)
    return one_machine(replace(machine.holding(engine), found=found, **changes))


def started(machine: Machine, container: str) -> Machine:
    key, engine = machine.record.key(container), machine.existing(container)
    broken = engine.broken and engine.turns is not Health.GOOD
    running = replace(engine, health=Health.LOADING, key=key, by_hand=False, broken=broken)
    proofs = tuple(item for item in machine.proofs if item[0] != container)
    return replace(machine.holding(running), pending="", restarting=False, proofs=proofs)


def asking(world: World) -> Iterator[Transition]:
    """A guard that has just begun asks the engines beside it for their health."""
    for machine in world.machines:
        if machine.unasked and not (machine.lost or machine.mute):
            yield f"the guard on {machine.name} asks its engines", world.with_machine(_asked(machine))


@by_identity
def _asked(machine: Machine) -> Machine:
    return one_machine(replace(machine, unasked=frozenset()))


def _proven(machine: Machine, container: str, key: str) -> Machine:
    answer = Answer.YES if machine.existing(container).health is Health.GOOD else Answer.NO
    others = tuple(item for item in machine.proofs if item[0] != container)
    return replace(machine, proofs=(*others, (container, key, answer)))


def watching(world: World) -> Iterator[Transition]:
    """The watch finds what has become of a promoted engine, and that it answers again."""
    for machine in world.machines:
        for engine in () if machine.lost or machine.mute else machine.engines:
            known = (engine.container, _found(world, machine, engine))
            others = tuple(item for item in machine.found if item[0] != engine.container)
            found = tuple(sorted((*others, known))) if known[1] else others
            if found != machine.found:
                label = f"the watch on {machine.name} finds {engine.container} {known[1] or 'well'}"
                yield label, world.with_machine(one_machine(replace(machine, found=found)))


def _found(world: World, machine: Machine, engine: Engine) -> str:
    """What is wrong with rank 0 of a promoted release while nothing changes it; empty if nothing, or not watched.

    It answers for all of its ranks: one that hangs, has ended or is out of reach makes it dead.
    """
    journal = machine.order.journal if machine.order else None
    if journal is None or journal.active is None or journal.unfinished or journal.stopping:
        return ""
    heads = {rank.place for rank in journal.active.heads}
    watched = (machine.name, engine.container) in heads and engine.running and not engine.ending
    if not watched or engine.health is Health.LOADING:
        return ""
    if engine.health is Health.WRONG:
        return GARBLED
    alive = {other.container for item, other in world.engines() if other.health is Health.GOOD and not item.lost}
    return "" if {engine.container, *(other.container for other in world.siblings(engine))} <= alive else DEAD
