"""Two operators and the lock that they take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparkops.commands import gateway
from sparkops.errors import SparkopsError
from sparkops.fleet import held as locks
from sparkops.fleet.held import Claim, Held
from sparkops.plan.lock import lease_left
from sparkops.release import Slot
from tests.fleet_unit.world import World

ANN = Claim("chat", "ann@desk", "d1")
BOB = Claim("chat", "bob@lap", "d2")
BOTH = ("n1", "n2")
CUT = gateway.cut("chat", Slot.BLUE)


@contextmanager
def hold(world: World, claim: Claim = ANN, nodes: tuple[str, ...] = BOTH) -> Iterator[Held]:
    with world.order() as order, locks.hold(order.connected, nodes, claim) as held:
        yield held


def left(world: World, *nodes: str) -> dict[str, float]:
    """Seconds of each node's lease."""
    return {name: lease_left(world.journal(name), world.clocks[name]()) for name in nodes or world.machines}


def problem(world: World, claim: Claim = BOB, nodes: tuple[str, ...] = BOTH) -> SparkopsError:
    with pytest.raises(SparkopsError) as caught, hold(world, claim, nodes):
        pytest.fail("the lock was taken")
    return caught.value


def wait_until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
