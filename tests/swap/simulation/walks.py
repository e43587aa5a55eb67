"""Long random runs: any transition, fault or operator at any time, in any order, and then a fair end."""

from __future__ import annotations

import random

from tests.swap.simulation import laws
from tests.swap.simulation.explore import Violation
from tests.swap.simulation.faults import faults
from tests.swap.simulation.scenarios import MODES, deploying, operators, rebuild
from tests.swap.simulation.transitions import enabled, following
from tests.swap.simulation.world import Transition, World

FAULT, OPERATOR = 0.04, 0.03
STEPS = 400


def walk(mode: str, seed: int, steps: int = STEPS) -> World:
    """One run with this seed. Raises Violation with its trace."""
    dice = random.Random(seed)
    world = deploying(mode)
    trace: list[str] = []
    for _ in range(steps):
        if (transition := _next(world, dice)) is None:
            break
        label, world = transition
        trace.append(label)
        _hold(world, trace, mode, seed, laws.standing(world))
    while (transition := following(world) or rebuild(world)) is not None:
        label, world = transition
        trace.append(label)
        _hold(world, trace, mode, seed, laws.standing(world))
        if len(trace) > 10 * steps:
            _hold(world, trace, mode, seed, ["8: it does not settle"])
    _hold(world, trace, mode, seed, laws.settled(world))
    return world


def _next(world: World, dice: random.Random) -> Transition | None:
    roll = dice.random()
    if roll < FAULT and (
        possible := [fault for fault in faults(world) if "loss" not in fault[0] or dice.random() < FAULT]
    ):
        return _marked("FAULT", dice.choice(possible))
    if roll > 1 - OPERATOR and (possible := list(operators(world))):
        return dice.choice(possible)
    if possible := list(enabled(world)):
        return dice.choice(possible)
    return rebuild(world)


def _marked(mark: str, transition: Transition) -> Transition:
    return f"{mark} {transition[0]}", transition[1]


def _hold(world: World, trace: list[str], mode: str, seed: int, wrongs: list[str]) -> None:
    if broken := [*world.wrongs, *wrongs]:
        raise Violation("\n".join([*trace[-80:], f"{mode}, seed {seed}", *broken]))


def main(count: int, first: int) -> None:
    """Walk through every mode with seeds from `first`."""
    for seed in range(first, first + count):
        for mode in MODES:
            walk(mode, seed)
    print(f"{count * len(MODES)} runs with seeds {first} to {first + count - 1}")
