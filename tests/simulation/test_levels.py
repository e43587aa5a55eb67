"""The machine in every state that faults and operators can bring it to, within a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.levels import DEEP, LEVELS, Level
from tests.simulation.scenarios import MODES
from tests.simulation.walks import walk
from tests.simulation.world import forget

pytestmark = pytest.mark.local


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    forget()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", DEEP + LEVELS, ids=str)
def test_no_law_is_broken_and_everything_settles(level: Level) -> None:
    result = level.run()

    print(f"{level}: {result.states} states, {result.ends} ends")
    assert result.ends > 0


@pytest.mark.parametrize("mode", MODES)
def test_random_walks_settle(mode: str) -> None:
    for seed in range(40):
        walk(mode, seed)
