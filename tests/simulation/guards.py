"""What guards do: their effects, one at a time."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.swap import effects as act
from sparkops.swap.effects import FollowerEffect
from sparkops.swap.follower import reconcile
from sparkops.swap.model import Answer, RankSpec
from tests.simulation import laws
from tests.simulation.sharing import by_identity, replace
from tests.simulation.states import one_machine
from tests.simulation.views import Health
from tests.simulation.world import BOOT, Engine, Machine, Transition, World, local


def acts(world: World) -> tuple[Machine | None, FollowerEffect | None]:
    """The guard whose effect is the next transition of the fair schedule, and the effect."""
    for machine in world.machines:
        if not machine.lost and (effect := reconciled(machine)):
            return machine, effect
    return None, None


@by_identity
def reconciled(machine: Machine) -> FollowerEffect | None:
    return reconcile(machine.order, local(machine))


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
            problems = tuple(item for item in machine.problems if item[0] != container)
            return replace(machine, pending=container, problems=problems, halted=machine.halted - {container})
        case act.CreateEngine(rank=rank):
            return _created(machine, rank)
        case act.StartEngine(container=container):
            return _started(machine, container)
        case act.StopEngine(container=container):
            stopped = replace(machine, halted=machine.halted | {container})
            return stopped.holding(replace(machine.existing(container), health=Health.STOPPED))
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
    started = replace(machine.existing(container), health=Health.LOADING, key=key, by_hand=False)
    proofs = tuple(item for item in machine.proofs if item[0] != container)
    return replace(machine.holding(started), pending="", proofs=proofs)


def _proven(machine: Machine, container: str, key: str) -> Machine:
    answer = Answer.YES if machine.existing(container).health is Health.GOOD else Answer.NO
    others = tuple(item for item in machine.proofs if item[0] != container)
    return replace(machine, proofs=(*others, (container, key, answer)))
