"""The effects of the swap machine on real containers: created, started once, stopped, removed for another spec."""

from __future__ import annotations

import subprocess

import pytest

from sparkops.errors import NotReady
from sparkops.serving import engine_spec
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.model import Mode, Phase
from tests.fleet.shell import docker
from tests.guard.docker.here import Here, inspect, recipe

pytestmark = pytest.mark.fleet


def test_an_order_is_on_disk_before_it_is_reported_and_creates_the_container_with_its_spec(guard: Here) -> None:
    target = guard.deployment(recipe("create"))
    [rank] = target.ranks
    guard.turn()
    journal = guard.begun(target)
    report = guard.send(journal)
    assert (report.revision, report.adopted) == (journal.revision, journal.revision)
    assert guard.state.record("create").copy == journal
    guard.is_(rank, EngineState.STOPPED)
    container = inspect(rank.container)
    assert container["Config"]["Labels"][engine_spec.SPEC_LABEL] == engine_spec.digest(rank)
    assert (container["State"]["Status"], container["Image"]) == ("created", guard.image)


def test_nothing_is_reported_before_docker_was_read(guard: Here) -> None:
    with pytest.raises(NotReady, match="containers unknown"):
        guard.report("create")
    guard.turn()
    assert guard.report("create").engines == ()


def test_a_start_is_marked_on_disk_loads_and_closes_its_port(guard: Here) -> None:
    target = guard.deployment(recipe("start", START_S="10"))
    [rank] = target.ranks
    guard.turn()
    journal = guard.begun(target, Phase.START)
    assert journal.swap
    guard.send(journal)
    guard.is_(rank, EngineState.LOADING)
    assert guard.state.record("start").key(rank.container) == journal.swap.key
    guard.is_(rank, EngineState.HEALTHY)
    assert guard.engine(rank).key == journal.swap.key
    assert any(line.startswith("loading weights") for line in guard.shown), guard.shown
    port = engine_spec.of(rank).rank(rank.node).port
    rules = subprocess.run(("nft", "list", "table", "inet", "sparkops"), capture_output=True, text=True, check=True)
    assert f"tcp dport {port} reject" in rules.stdout


def test_a_start_happens_once(guard: Here) -> None:
    target = guard.deployment(recipe("once"))
    [rank] = target.ranks
    guard.run(target, Phase.START)
    docker("kill", rank.container)
    guard.is_(rank, EngineState.STOPPED)
    guard.rounds(3)
    assert inspect(rank.container)["State"]["Status"] == "exited"
    guard.restart().turn()
    guard.send(guard.begun(target, Phase.START))
    guard.rounds(3)
    assert inspect(rank.container)["State"]["Status"] == "exited"


def test_an_engine_that_loads_is_stopped_without_its_grace_period(guard: Here) -> None:
    target = guard.deployment(recipe("soon", START_S="600", IGNORE_TERM="1", serve__stop_grace_s=600))
    [rank] = target.ranks
    journal = guard.begun(target, Phase.START)
    guard.turn()
    guard.send(journal)
    guard.until(lambda: guard.shown)
    guard.send(journal.reverted("a test"))
    guard.is_(rank, EngineState.STOPPED)


def test_a_stop_has_its_grace_period_and_then_no_choice(guard: Here) -> None:
    target = guard.deployment(recipe("stop", IGNORE_TERM="1", serve__stop_grace_s=1))
    [rank] = target.ranks
    journal = guard.run(target)
    guard.send(journal.reverted("a test"))
    guard.is_(rank, EngineState.STOPPED)
    assert inspect(rank.container)["State"]["ExitCode"] == 137
    assert rank.container in guard.state.record("stop").down
    assert guard.engine(rank).problem == ""


def test_a_stopped_container_of_another_spec_is_made_again(guard: Here) -> None:
    old = guard.deployment(recipe("spec", serve__port=9711))
    [rank] = old.ranks
    guard.turn()
    guard.send(guard.begun(old))
    guard.is_(rank, EngineState.STOPPED)
    before = inspect(rank.container)["Id"]
    new = guard.deployment(recipe("spec", serve__port=9711), jobs=2)
    [other] = new.ranks
    assert (rank.container, rank.spec == other.spec) == (other.container, False)
    report = guard.send(guard.begun(new, Phase.WORKERS))
    assert report.engine(rank.container).state is EngineState.ABSENT
    guard.is_(other, EngineState.STOPPED)
    container = inspect(rank.container)
    assert (container["Id"] != before, "MAX_JOBS=2" in container["Config"]["Env"]) == (True, True)


def test_a_running_container_of_another_spec_is_a_problem_and_not_proven(guard: Here) -> None:
    old = guard.deployment(recipe("other", serve__port=9721))
    [rank] = old.ranks
    journal = guard.run(old)
    new = guard.deployment(recipe("other", serve__port=9721), jobs=2)
    guard.send(guard.begun(new, Phase.VERIFY))
    guard.until(lambda: guard.engine(rank).proven_key)
    engine = guard.engine(rank)
    assert journal.swap
    assert (engine.state, engine.proven) == (EngineState.HEALTHY, "no")
    assert engine.problem == f"{rank.container} runs with another spec"


def test_what_docker_refuses_is_a_problem(guard: Here) -> None:
    target = guard.deployment(recipe("refused"), image="sha256:" + "0" * 64)
    [rank] = target.ranks
    guard.turn()
    guard.send(guard.begun(target))
    problem = guard.until(lambda: guard.engine(rank).problem)
    assert "No such image" in problem
    assert guard.engine(rank).state is EngineState.ABSENT


def test_a_start_that_docker_refuses_names_the_likely_cause(guard: Here) -> None:
    target = guard.deployment(recipe("driver"), node={"gpu": "runtime"})
    [rank] = target.ranks
    guard.turn()
    journal = guard.begun(target, Phase.START)
    guard.send(journal)
    problem = guard.until(lambda: guard.engine(rank).problem)
    assert "likely cause: the node's Docker lacks the NVIDIA Container Toolkit" in problem
    guard.is_(rank, EngineState.STOPPED)
    assert journal.swap
    assert (guard.engine(rank).problem, guard.engine(rank).key) == (problem, journal.swap.key)


def test_problems_of_another_swap_are_forgotten(guard: Here) -> None:
    broken = guard.deployment(recipe("again", serve__port=9731), image="sha256:" + "0" * 64)
    [rank] = broken.ranks
    guard.turn()
    failed = guard.begun(broken)
    guard.send(failed)
    guard.until(lambda: guard.engine(rank).problem)
    reverted = failed.reverted("a test")
    guard.send(reverted)
    well = guard.deployment(recipe("again", serve__port=9731))
    guard.send(reverted.begun("i2", Mode.FIRST, well, automatic=True))
    guard.is_(rank, EngineState.STOPPED)
    assert guard.engine(rank).problem == ""
