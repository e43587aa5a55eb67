"""The boot record: what it names starts again by itself, within a budget, unless an operator stopped it."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from sparkops.guard.disk.notes import RESTART
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.journal import HOUR_S, RESTARTS
from sparkops.swap.model import Deployment, RankSpec
from tests.fleet.shell import docker
from tests.guard.docker.here import Here, inspect, recipe

pytestmark = pytest.mark.fleet
SLOW_S = 600.0
"""Far more than a test takes."""


def promoted(guard: Here, service: str, **changes: Any) -> tuple[Deployment, RankSpec]:
    """A release that serves, and is armed."""
    target = guard.deployment(recipe(service, **changes))
    [rank] = target.ranks
    guard.promoted(guard.run(target))
    assert guard.state.record(service).armed == rank
    return target, rank


def crash(rank: RankSpec) -> None:
    """End an engine as a bug of it does: Docker is not asked."""
    pid = inspect(rank.container)["State"]["Pid"]
    assert pid, "it does not run: a kill of process 0 would end the tests"
    os.kill(pid, signal.SIGKILL)


def restarts(guard: Here, service: str) -> int:
    return sum(event["kind"] == RESTART for event in guard.state.events(service))


def test_an_engine_that_crashes_starts_again_and_is_counted(guard: Here) -> None:
    _, rank = promoted(guard, "crashes")
    crash(rank)
    guard.until(lambda: restarts(guard, "crashes"))
    guard.is_(rank, EngineState.HEALTHY)
    assert guard.state.record("crashes").restarts == 1


def test_it_starts_without_any_order(guard: Here) -> None:
    _, rank = promoted(guard, "orderless")
    guard.follower.close()
    crash(rank)
    guard.restart().until(lambda: restarts(guard, "orderless"))
    guard.is_(rank, EngineState.HEALTHY)


@pytest.mark.parametrize("verb", ["stop", pytest.param("kill", marks=pytest.mark.matrix)])
def test_an_engine_that_an_operator_stops_stays_down_until_it_is_started(guard: Here, verb: str) -> None:
    _, rank = promoted(guard, f"hand-{verb}")
    docker(verb, rank.container)
    guard.until(lambda: guard.state.by_hand(f"hand-{verb}"))
    guard.rounds(2)
    guard.restart().rounds(2)
    assert inspect(rank.container)["State"]["Status"] == "exited"
    assert restarts(guard, f"hand-{verb}") == 0
    docker("start", rank.container)
    guard.is_(rank, EngineState.HEALTHY)
    assert guard.state.by_hand(f"hand-{verb}") == frozenset()


@pytest.mark.matrix
def test_a_stop_while_the_guard_was_away_is_one_by_hand_too(guard: Here) -> None:
    _, rank = promoted(guard, "away")
    guard.follower.close()
    docker("stop", rank.container)
    guard.restart().until(lambda: guard.state.by_hand("away"))
    assert guard.state.by_hand("away") == {rank.container}


@pytest.mark.matrix
def test_the_budget_of_restarts_is_whole_again_after_an_hour_without_one(guard: Here) -> None:
    _, rank = promoted(guard, "budget")
    spent = replace(guard.state.record("budget"), restarts=RESTARTS - 1)
    guard.follower.close()
    guard.state.write_record("budget", spent)
    guard.restart().turn()
    crash(rank)
    guard.until(lambda: guard.state.record("budget").restarts == RESTARTS)
    guard.is_(rank, EngineState.HEALTHY)
    crash(rank)
    guard.until(lambda: inspect(rank.container)["State"]["Status"] == "exited")
    guard.clock.ahead_s = HOUR_S - SLOW_S
    guard.rounds(3)
    guard.restart().rounds(3)
    assert inspect(rank.container)["State"]["Status"] == "exited"
    guard.clock.ahead_s = HOUR_S
    guard.is_(rank, EngineState.HEALTHY)
    assert (guard.state.record("budget").restarts, restarts(guard, "budget")) == (1, 2)


def test_an_engine_that_the_leader_stopped_is_not_one_stopped_by_hand(guard: Here) -> None:
    target = guard.deployment(recipe("ordered"))
    [rank] = target.ranks
    ended = guard.promoted(guard.run(target))
    guard.send(ended.offline())
    guard.is_(rank, EngineState.STOPPED)
    guard.rounds(1)
    assert guard.state.by_hand("ordered") == frozenset()
    assert rank.container in guard.state.record("ordered").down
