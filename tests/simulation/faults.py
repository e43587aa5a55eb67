"""What goes wrong. Each fault is a transition that an exploration may take a bounded number of times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.transitions import Transition, deliver
from tests.simulation.world import EARLIER, Engine, Gateway, Health, Leader, Machine, World


def faults(world: World) -> Iterator[Transition]:
    """Every fault that changes this state."""
    for machine in world.machines:
        if machine.lost:  # its operator may have given it up meanwhile
            yield f"return of {machine.name}", _booted(world, replace(machine, lost=False))
        else:
            yield f"crash of the guard on {machine.name}", _guard(world, machine)
            yield f"reboot of {machine.name}", _reboot(world, machine)
            yield f"loss of {machine.name}", _lose(world, machine)
            yield from _engines(world, machine)
            if not machine.full:
                yield f"full disk on {machine.name}", world.with_machine(replace(machine, full=True))
            if machine.late is not None and machine.late != machine.order:
                yield f"a late order to {machine.name}", deliver(world, machine, machine.late)
        if machine.name != world.gateway.node and machine.name not in world.cut and not machine.lost:
            cut = replace(world, cut=world.cut | {machine.name})
            yield f"cut link to {machine.name}", _touched(cut, machine)
    if not world.gateway.stalled:
        yield "HAProxy stalls", replace(world, gateway=replace(world.gateway, stalled=True))


def _fresh(machine: Machine) -> Machine:
    """What a guard's process forgets."""
    return replace(machine, order=None, late=None, pending="", proofs=(), problems=())


def _guard(world: World, machine: Machine) -> World:
    return _forget(world.with_machine(_fresh(machine)), machine.name)


def _forget(world: World, name: str) -> World:
    """The leader's process on this node forgets what it has seen, and keeps its journal."""
    leaders = tuple(Leader(leader.journal) if leader.journal.leader == name else leader for leader in world.leaders)
    return replace(world, leaders=leaders)


def _touched(world: World, machine: Machine) -> World:
    """Note whether the fault hit what requests go through."""
    path = {
        other.name
        for other, engine in world.engines()
        if engine.release in (world.gateway.traffic, *world.gateway.open)
    }
    return replace(world, touched=world.touched or machine.name in path | {world.gateway.node})


def _reboot(world: World, machine: Machine) -> World:
    engines = tuple(replace(engine, health=Health.STOPPED) for engine in machine.engines)
    booted = replace(_fresh(machine), engines=engines)
    after = _touched(_forget(_booted(world, booted), machine.name), machine)
    if machine.name == world.gateway.node:
        after = replace(after, gateway=replace(after.gateway, open=(), stalled=False))
    return replace(after, gateway=_without_dead(after))


def _booted(world: World, machine: Machine) -> World:
    """A new boot. What was noted in the last one belongs to an earlier boot, however many there were."""
    record = replace(machine.record, boot=EARLIER)
    leaders = tuple(
        replace(
            leader,
            reports=tuple(
                replace(report, boot=EARLIER) if report.node == machine.name else report for report in leader.reports
            ),
        )
        for leader in world.leaders
    )
    booted = replace(machine, record=record, halted=frozenset())
    return replace(world.with_machine(booted), leaders=leaders)


def _lose(world: World, machine: Machine) -> World:
    engines = tuple(replace(engine, health=Health.STOPPED) for engine in machine.engines)
    gone = _forget(world.with_machine(replace(_fresh(machine), lost=True, engines=engines)), machine.name)
    return replace(_touched(gone, machine), gateway=_without_dead(gone))


def _engines(world: World, machine: Machine) -> Iterator[Transition]:
    for engine in machine.engines:
        if not engine.running:
            continue
        for health in (Health.STOPPED, Health.HUNG):
            if engine.health is Health.LOADING and health is Health.HUNG:
                hurt = replace(engine, turns=Health.LOADING)
            else:
                hurt = replace(engine, health=health)
            if hurt != engine:
                yield f"{engine.container} is {health}", _hurt(world, machine, hurt)


def _hurt(world: World, machine: Machine, hurt: Engine) -> World:
    after = _touched(world.with_machine(machine.holding(hurt)), machine)
    return replace(after, gateway=_without_dead(after))


def _without_dead(world: World) -> Gateway:
    """Requests in progress in an engine that ended have ended too."""
    alive = {engine.release for _, engine in world.engines() if engine.running}
    return replace(world.gateway, open=tuple(name for name in world.gateway.open if name in alive))
