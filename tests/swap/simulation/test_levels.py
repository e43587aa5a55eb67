"""The machine in every state that faults and operators can bring it to, within a bound."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.swap.simulation.explore import explore
from tests.swap.simulation.faults import exhausted
from tests.swap.simulation.levels import DEEP, LEVELS, Level
from tests.swap.simulation.scenarios import MODES, deploying
from tests.swap.simulation.sharing import forget, replace
from tests.swap.simulation.walks import walk
from tests.swap.simulation.world import World

pytestmark = pytest.mark.local

WITHOUT_LEFT_OUT = tuple(Level(mode, 1, 0) for mode in MODES)
"""What `test_faults_that_are_left_out_lead_nowhere_else` explores."""
WITHIN_DEEP = tuple(Level(level.mode, *less) for level in DEEP for less in ((1, 0), (0, 1)))
"""Levels whose every run is also one of a deeper level, with a fault or an intent that did not happen."""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Values of an exploration refer to no cycle, and are millions: the collector would only walk through them."""
    gc.disable()
    yield
    forget()
    gc.enable()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "level", [level for level in DEEP + LEVELS if level not in WITHOUT_LEFT_OUT + WITHIN_DEEP], ids=str
)
def test_no_law_is_broken_and_everything_settles(level: Level) -> None:
    result = level.run()

    print(f"{level}: {result.states} states, {len(result.ends)} ends")
    assert result.ends


@pytest.mark.parametrize("mode", MODES)
def test_faults_that_are_left_out_lead_nowhere_else(mode: str) -> None:
    start = deploying(mode)

    reduced, every = (explore(start, faults_=1, intents=0, reduced=reduced) for reduced in (True, False))

    assert reduced.ends
    assert reduced.states < every.states
    assert set(map(essential, reduced.ends)) == set(map(essential, every.ends))


def essential(world: World) -> World:
    """An end without what only a further fault would read: orders that may arrive again, and a disk that is full."""
    world = exhausted(world)
    return replace(world, machines=tuple(replace(machine, full=False) for machine in world.machines))


@pytest.mark.parametrize("mode", MODES)
def test_random_walks_settle(mode: str) -> None:
    for seed in range(40):
        walk(mode, seed)
