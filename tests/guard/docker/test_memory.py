"""Memory: an engine starts only where it fits, one at a time on a node, and ends before its node runs out."""

from __future__ import annotations

import threading

import pytest

from sparkops.errors import Busy
from sparkops.guard.follow.free_memory import APART_S, Measuring
from sparkops.guard.watch.memory_floor import MemoryFloor
from sparkops.node import host
from sparkops.serving.memory.relief import FLOOR_GIB, LOOKS
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.model import Phase
from tests.guard.docker.here import Here, inspect, recipe
from tests.guard.docker.test_boot import crash, promoted, restarts

pytestmark = pytest.mark.fleet
LITTLE = 0.05


class Pauses(threading.Event):
    """An event that records the pauses for which it is waited on."""

    def __init__(self) -> None:
        super().__init__()
        self.requested_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.requested_s.append(timeout)
        return super().wait(timeout)


def test_an_engine_waits_for_the_memory_that_it_claims(guard: Here) -> None:
    target = guard.deployment(recipe("large", memory__claim_gib=10_000))
    [rank] = target.ranks
    guard.turn()
    guard.send(guard.begun(target, Phase.START))
    guard.until(lambda: any(line.startswith("waiting for memory: 10000 GiB claimed") for line in guard.shown))
    guard.rounds(3)
    assert inspect(rank.container)["State"]["Status"] == "created"
    assert guard.state.record("large").started == ()


def test_no_engine_loads_beside_a_build_and_no_build_begins_beside_a_load(guard: Here) -> None:
    target = guard.deployment(recipe("built", HANG_AT="40"))
    [rank] = target.ranks
    guard.turn()
    with guard.follower.lease("build of image x by ann@laptop"):
        guard.send(guard.begun(target, Phase.START))
        guard.until(lambda: "waiting for the build of image x by ann@laptop" in guard.shown)
        guard.rounds(1)
        assert inspect(rank.container)["State"]["Status"] == "created"
        assert guard.report("built").lease == "build of image x by ann@laptop"
    guard.is_(rank, EngineState.LOADING)
    with pytest.raises(Busy, match="an engine of built loads"):
        guard.follower.lease("build of image y by ann@laptop")
    assert guard.report("built").lease == ""


def test_the_lower_of_two_samples_counts(guard: Here) -> None:
    pauses = Pauses()
    free_gib = Measuring(guard.node, "none", recipe("samples"), None, True, print, pauses).free_gib()
    assert pauses.requested_s == [APART_S]
    facts = host.parse(guard.node.run(host.FREE).stdout)
    assert 0 < free_gib <= facts.memory_total_gib


@pytest.mark.matrix
def test_one_engine_loads_at_a_time_whatever_service_it_is_of(guard: Here) -> None:
    first, second = guard.deployment(recipe("one", START_S="10")), guard.deployment(recipe("two"))
    [one], [two] = first.ranks, second.ranks
    guard.turn()
    guard.send(guard.begun(first, Phase.START))
    guard.is_(one, EngineState.LOADING)
    guard.send(guard.begun(second, Phase.START))

    def loads() -> bool:
        states = [guard.engine(rank).state for rank in (one, two)]
        assert states != [EngineState.LOADING, EngineState.LOADING]
        return states[0] is EngineState.HEALTHY

    guard.until(loads)
    guard.is_(two, EngineState.HEALTHY)
    ready, began = (inspect(rank.container)["State"]["StartedAt"] for rank in (one, two))
    assert ready < began


@pytest.mark.matrix
def test_a_long_stop_of_one_service_delays_no_other(guard: Here) -> None:
    slow = guard.deployment(recipe("slow", IGNORE_TERM="1", serve__stop_grace_s=600))
    quick = guard.deployment(recipe("quick"))
    [slow_rank], [quick_rank] = slow.ranks, quick.ranks
    stopping, running = guard.run(slow), guard.run(quick)
    guard.send(stopping.reverted("a test"))
    guard.rounds(1)
    guard.send(running.reverted("a test"))
    guard.is_(quick_rank, EngineState.STOPPED)
    assert guard.engine(slow_rank).state is EngineState.HEALTHY


def test_a_new_release_that_leaves_too_little_is_killed_and_says_why(guard: Here) -> None:
    target = guard.deployment(recipe("floor", HANG_AT="40"))
    [rank] = target.ranks
    guard.turn()
    guard.send(guard.begun(target, Phase.START))
    guard.until(guard.follower.expendable)
    floor = MemoryFloor(guard.follower, guard.node, guard.lines.append, lambda: LITTLE)
    for _ in range(LOOKS):
        assert inspect(rank.container)["State"]["Running"]
        floor.look()
    assert not inspect(rank.container)["State"]["Running"]
    guard.is_(rank, EngineState.STOPPED)
    assert guard.engine(rank).problem.startswith(f"0.1 GiB of memory left, floor 0.1 GiB: {rank.container} killed (")


def test_a_moment_of_little_memory_kills_nothing(guard: Here) -> None:
    target = guard.deployment(recipe("moment"))
    [rank] = target.ranks
    guard.run(target, Phase.VERIFY)
    left = iter([LITTLE, FLOOR_GIB, LITTLE, FLOOR_GIB])
    floor = MemoryFloor(guard.follower, guard.node, guard.lines.append, lambda: next(left))
    for _ in range(4):
        floor.look()
    assert inspect(rank.container)["State"]["Running"]


@pytest.mark.matrix
def test_a_kill_for_memory_is_not_one_by_hand(guard: Here) -> None:
    _, rank = promoted(guard, "relief", START_S="8")
    crash(rank)
    guard.until(lambda: restarts(guard, "relief") == 1)
    guard.until(guard.follower.expendable)
    floor = MemoryFloor(guard.follower, guard.node, guard.lines.append, lambda: LITTLE)
    for _ in range(LOOKS):
        floor.look()
    guard.until(lambda: restarts(guard, "relief") == 2)
    guard.is_(rank, EngineState.HEALTHY)
    assert guard.state.by_hand("relief") == frozenset()
