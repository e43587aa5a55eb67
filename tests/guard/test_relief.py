"""A green that takes the last memory of its node is killed by the guard there, before the node hangs."""

from __future__ import annotations

from contextlib import suppress

import pytest

from sparkops.errors import SparkopsError
from sparkops.guard.relief import Relief, read_available_gib
from sparkops.plan.journal import Phase
from sparkops.plan.relief import FLOOR_GIB
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.nodes import MachineNode
from tests.fleet_unit.verbs import deploy, free, id_of
from tests.fleet_unit.world import World

ENOUGH, LITTLE = FLOOR_GIB + 0.1, FLOOR_GIB - 0.1


def killed(world: World, phase: Phase, *left_gib: float, reserve_gib: float = 15.0) -> list[str]:
    """What looks kill on n1 that find so much memory left, a second apart, when a swap there is in a phase."""
    deploy(world, "1")
    machine, looks, told = world.machines["n1"], iter(left_gib), list[str]()
    relief = Relief(world.stores["n1"], MachineNode(machine, world.stores["n1"]), told.append, lambda: next(looks))

    def look() -> None:
        for _ in left_gib:
            relief.look()

    world.listeners[f"phase {phase}"] = look
    with suppress(SparkopsError):
        deploy(world, "2", swap={"bake_s": 0.1, "reserve_gib": reserve_gib})
    ended = [line.removeprefix("docker kill ") for line in machine.ran if line.startswith("docker kill")]
    assert len(told) == len(ended)
    return ended


@pytest.mark.parametrize(
    ("phase", "left_gib"),
    [
        (Phase.LOAD, (LITTLE, LITTLE)),
        (Phase.VERIFY, (LITTLE, LITTLE, LITTLE)),
        (Phase.SWITCH, (LITTLE, LITTLE, LITTLE)),
    ],
)
def test_a_green_that_leaves_too_little_is_killed_and_blue_serves(
    make: Make, phase: Phase, left_gib: tuple[float, ...]
) -> None:
    world = make(1)
    [ended] = killed(world, phase, *left_gib)
    blue = id_of(world, "1")
    assert not ended.startswith(blue)
    assert (world.serving(), free(world)) == (blue, True)


@pytest.mark.parametrize(
    ("phase", "left_gib"),
    [
        (Phase.LOAD, (LITTLE, ENOUGH, LITTLE, ENOUGH)),
        (Phase.LOAD, (ENOUGH, ENOUGH)),
        (Phase.ARM, (LITTLE, LITTLE)),
        (Phase.PROMOTE, (LITTLE, LITTLE)),
    ],
)
def test_a_moment_of_little_memory_or_one_that_is_promoted_is_left_alone(
    make: Make, phase: Phase, left_gib: tuple[float, ...]
) -> None:
    world = make(1)
    assert killed(world, phase, *left_gib) == []
    assert not world.serving().startswith(id_of(world, "1"))


def test_a_recipe_that_keeps_back_less_may_take_more(make: Make) -> None:
    assert killed(make(1), Phase.LOAD, LITTLE, LITTLE, reserve_gib=1) == []


def test_this_machine_says_what_it_has() -> None:
    assert read_available_gib() > 0
