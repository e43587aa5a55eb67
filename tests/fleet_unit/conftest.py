"""Fleets without hardware."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.fleet_unit import world as worlds
from tests.fleet_unit.world import World

Make = Callable[[int], World]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Worlds of so many machines, ended with the test."""
    with ExitStack() as stack:
        yield lambda number: stack.enter_context(closing(worlds.build(tmp_path, number)))
