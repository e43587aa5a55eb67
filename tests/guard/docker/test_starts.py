"""The watch over a start: what ended it is reported with its cause, and kept as evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkops.engines.start_log import Stage
from sparkops.serving import engine_spec
from sparkops.serving.startup.estimate import Started
from sparkops.swap.fleet_state import EngineReport, EngineState
from sparkops.swap.model import Phase
from tests.fleet.shell import docker
from tests.guard.docker.here import Here, inspect, recipe

pytestmark = pytest.mark.fleet
FOUND = (EngineState.LOADING, EngineState.HEALTHY)


def failed(guard: Here, service: str, memory_gib: float | None = None, **changes: Any) -> EngineReport:
    """The report on a start that fails, once its evidence is kept."""
    target = guard.deployment(recipe(service, **changes), memory_gib=memory_gib)
    [rank] = target.ranks
    guard.turn()
    journal = guard.begun(target, Phase.START)
    guard.send(journal)
    guard.until(lambda: guard.engine(rank).problem)
    guard.until(lambda: guard.state.events(service))
    assert journal.swap
    assert guard.engine(rank).key == journal.swap.key
    return guard.engine(rank)


def evidence(guard: Here, service: str) -> dict[str, str]:
    """The files that the event of a failure names."""
    [event] = guard.state.events(service)
    assert (event["kind"], event["node"]) == ("evidence", "here")
    directory = Path(event["evidence"][0].partition("sparkops-guard:")[2].split()[0])
    return {file.name: file.read_text() for file in directory.iterdir()}


def test_a_crash_is_reported_with_its_error_and_known_cause(guard: Here) -> None:
    engine = failed(guard, "crash", CRASH_AT="40", FATAL="CUDA out of memory")
    guard.until(lambda: not inspect(engine.container)["State"]["Running"])  # its last line comes before its end
    assert "did not start: " in engine.problem
    assert "CUDA out of memory" in engine.problem
    assert "likely cause: the engine ran out of GPU memory" in engine.problem
    kept = evidence(guard, "crash")
    assert set(kept) == {"log.txt", "inspect.json", "memory.csv"}
    assert "CUDA out of memory" in kept["log.txt"]


def test_a_start_that_stalls_is_reported_while_it_runs(guard: Here) -> None:
    engine = failed(guard, "stall", HANG_AT="40", probe__startup={"stall_s": 8})
    assert "no progress for 8 s (stage: loading weights 40 %)" in engine.problem
    assert engine.state is EngineState.LOADING


def test_a_start_that_the_kernel_kills_is_reported_as_that(guard: Here) -> None:
    engine = failed(guard, "oom", memory_gib=0.06, MEMORY_MIB="300")
    assert "its process was OOM-killed" in engine.problem
    assert inspect(engine.container)["State"]["OOMKilled"]


@pytest.mark.matrix
def test_a_start_is_learnt_and_the_next_one_is_forecast(guard: Here) -> None:
    target = guard.deployment(recipe("learn", START_S="6"))
    [rank] = target.ranks
    journal = guard.run(target)
    learnt = guard.until(lambda: guard.state.starts("learn"))
    assert {Stage.WEIGHTS, Stage.SERVING} <= Started.model_validate(learnt[0]).stages.keys()
    guard.send(journal.reverted("a test"))
    guard.is_(rank, EngineState.STOPPED)
    stopped = journal.reverted("a test").confirmed_stopped([rank])
    next_journal = stopped.begun("i2", journal.swap.mode, target, automatic=True)  # type: ignore[union-attr]
    guard.send(next_journal.changed(swap=next_journal.swap).advanced())
    guard.is_(rank, EngineState.HEALTHY)
    assert any("left, from 1 past start" in line for line in guard.shown), guard.shown


def test_a_guard_that_restarts_finds_a_loading_and_a_healthy_engine_again(guard: Here) -> None:
    target = guard.deployment(recipe("found", START_S="6"))
    [rank] = target.ranks
    guard.turn()
    journal = guard.begun(target, Phase.START)
    guard.send(journal)
    guard.until(guard.follower.expendable)
    guard.restart().turn()
    assert guard.send(journal).engine(rank.container).state in FOUND
    guard.is_(rank, EngineState.HEALTHY)
    started = inspect(rank.container)["State"]["StartedAt"]
    guard.restart().turn()
    assert guard.send(journal).engine(rank.container).state in FOUND
    guard.is_(rank, EngineState.HEALTHY)
    assert inspect(rank.container)["State"]["StartedAt"] == started
    assert guard.engine(rank).problem == ""


def test_a_rank_above_0_has_loaded_once_its_rank_0_is_to_be_verified(guard: Here) -> None:
    target = guard.deployment(recipe("worker"), index=1)
    [rank] = target.ranks
    assert engine_spec.of(rank).index == 1
    guard.turn()
    guard.send(guard.begun(target, Phase.START))
    guard.is_(rank, EngineState.LOADING)
    guard.rounds(4)
    assert guard.engine(rank).state is EngineState.LOADING
    assert guard.send(guard.begun(target, Phase.VERIFY)).engine(rank.container).state is EngineState.HEALTHY


def test_a_rank_above_0_that_ends_while_it_loads_is_explained(guard: Here) -> None:
    target = guard.deployment(recipe("ended", CRASH_AT="40"), index=1)
    [rank] = target.ranks
    guard.turn()
    guard.send(guard.begun(target, Phase.START))
    problem = guard.until(lambda: guard.engine(rank).problem)
    assert "the stand-in crashes at 40 % of the weights" in problem
    docker("rm", "--force", rank.container)
