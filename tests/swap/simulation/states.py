"""States that are equal become one object, part by part."""

from __future__ import annotations

from collections.abc import Hashable

from sparkops.swap.journal import Journal
from sparkops.swap.orders import Order
from tests.swap.simulation.sharing import is_shared, replace, shared
from tests.swap.simulation.world import Leader, Machine, World


def canonical(world: World) -> World:
    """The same state of values that are one object where they are equal, so that states compare by identity."""
    if all(map(is_shared, (*world.machines, *world.leaders))):
        return world
    machines = tuple([one_machine(machine) for machine in world.machines])
    leaders = tuple([one_leader(leader) for leader in world.leaders])
    return replace(world, machines=machines, leaders=leaders)


def identity(world: World) -> int:
    """A hash that equal states share. `world` is canonical."""
    values = (
        id(shared(world.gateway)),
        world.cut,
        world.touched,
        world.unacknowledged,
        world.acknowledged,
        world.starts,
        world.wrongs,
    )
    return hash((*map(id, world.machines), *map(id, world.leaders), values))


def one_machine(machine: Machine) -> Machine:
    return shared(machine, _machine_key)


def one_leader(leader: Leader) -> Leader:
    return shared(leader, _leader_key)


def _journal(journal: Journal | None) -> int:
    return id(shared(journal)) if journal is not None else 0


def _order(order: Order | None) -> tuple[int, str]:
    return (_journal(order.journal), order.boot) if order else (0, "")


def _machine_key(machine: Machine) -> Hashable:
    record = machine.record
    return (
        "machine", machine.name, machine.lost, machine.full, machine.refusing, machine.mute, machine.leased,
        machine.cordoned, machine.joined,
        machine.engines, machine.other, machine.halted, machine.pending, machine.restarting, machine.stopping,
        machine.refused, machine.unasked, machine.found, machine.proofs, machine.problems, _order(machine.order),
        _order(machine.late),
        record.term, _journal(record.copy), record.armed, record.alone, record.started, record.earlier, record.down,
        record.boot, record.restarts,
    )  # fmt: skip


def _leader_key(leader: Leader) -> Hashable:
    reports = tuple([id(shared(report)) for report in leader.reports])
    return (
        "leader",
        _journal(leader.journal),
        reports,
        leader.met,
        leader.away,
        leader.sampled,
        leader.waited,
        leader.rested,
        leader.tried,
        leader.failing,
    )
