"""The verbs, run on a world."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.errors import (
    SparkopsError,
)
from sparkops.fleet import blue_green
from sparkops.plan.lock import lease_left
from sparkops.plan.option import Wish
from tests.fleet_unit.world import World

DOWN = Wish(allow_downtime=True)


def deploy(
    world: World, version: str, wish: Wish = DOWN, *, promote: bool = True, **changes: Any
) -> dict[str, Any] | None:
    with world.order() as order:
        return blue_green.deploy(order, world.release(version, **changes), wish, promote=promote)


def problem(world: World, version: str, wish: Wish = DOWN, **changes: Any) -> SparkopsError:
    with pytest.raises(SparkopsError) as caught:
        deploy(world, version, wish, **changes)
    return caught.value


def id_of(world: World, version: str) -> str:
    return world.release(version).id


def free(world: World) -> bool:
    """Whether nobody holds the lock, and no swap is under way."""
    return all(
        not lease_left(world.journal(name), world.clocks[name]()) and world.journal(name).swap is None
        for name in world.machines
    )
