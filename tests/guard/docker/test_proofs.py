"""The smoke suite as a job of the guard: a verdict for one start, repeated before it is no, run again if lost."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import requests

from sparkops.errors import Interrupted
from sparkops.guard.follow import smoke_runs
from sparkops.node.docker.facts import parse_container
from sparkops.serving import engine_spec
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.model import Answer, Phase
from tests.guard.docker.here import Here, inspect, recipe
from tests.guard.docker.test_starts import evidence
from tests.http_server import Answer as Answered
from tests.http_server import Asked, answering

pytestmark = pytest.mark.fleet


def test_an_engine_that_answers_rightly_is_proven_for_its_start(guard: Here) -> None:
    target = guard.deployment(recipe("right", probe__passes=2))
    [rank] = target.ranks
    journal = guard.run(target, Phase.VERIFY)
    guard.until(lambda: guard.engine(rank).proven_key)
    engine = guard.engine(rank)
    assert journal.swap
    assert (engine.proven, engine.proven_key, engine.problem) == (Answer.YES, journal.swap.key, "")
    guard.send(guard.begun(target, Phase.SWITCH))
    assert guard.engine(rank).proven is Answer.UNKNOWN


def test_a_failed_pass_is_repeated_before_the_verdict_which_is_kept_with_its_transcript(guard: Here) -> None:
    target = guard.deployment(recipe("wrong", ANSWERS="nonsense"))
    [rank] = target.ranks
    guard.run(target, Phase.VERIFY)
    guard.until(lambda: guard.engine(rank).proven_key)
    engine = guard.engine(rank)
    assert engine.proven is Answer.NO
    assert "the smoke suite failed in pass 1 of 1" in engine.problem
    guard.until(lambda: guard.state.events("wrong"))
    kept = evidence(guard, "wrong")
    assert set(kept) == {"log.txt", "inspect.json", "probe.json"}
    assert '"ok": false' in kept["probe.json"]


@pytest.mark.matrix
def test_a_lost_suite_runs_again(guard: Here) -> None:
    target = guard.deployment(recipe("lost", TTFT_S="1"))
    [rank] = target.ranks
    journal = guard.run(target, Phase.VERIFY)
    guard.until(lambda: any("checks passed" in line for line in guard.shown))
    guard.restart().turn()
    guard.send(journal)
    assert guard.engine(rank).proven is Answer.UNKNOWN
    guard.until(lambda: guard.engine(rank).proven is Answer.YES)


@pytest.mark.matrix
def test_a_suite_that_is_not_ordered_any_more_delays_no_stop(guard: Here) -> None:
    target = guard.deployment(recipe("dropped", TTFT_S="100"))
    [rank] = target.ranks
    journal = guard.run(target, Phase.VERIFY)
    guard.until(lambda: any("checks passed" in line for line in guard.shown))
    guard.send(journal.reverted("a test"))
    guard.is_(rank, EngineState.STOPPED)
    assert guard.engine(rank).proven is Answer.UNKNOWN


def test_a_cancelled_suite_has_no_verdict(guard: Here) -> None:
    target = guard.deployment(recipe("cancel"))
    [rank] = target.ranks
    guard.run(target)
    cancel = threading.Event()
    cancel.set()
    container = parse_container("here", inspect(rank.container))
    with pytest.raises(Interrupted):
        smoke_runs.prove(guard.node, container, engine_spec.of(rank).parsed, print, cancel)


def test_a_pass_that_fails_once_is_no_verdict(guard: Here) -> None:
    target = guard.deployment(recipe("flaky", probe__passes=2, probe__smoke__streaming={"enabled": False}))
    [rank] = target.ranks
    guard.run(target)
    container, shown = parse_container("here", inspect(rank.container)), list[str]()
    failures = iter([Answered(500)])

    def respond(request: Asked) -> Answered:
        """Pass a request on; the first completion fails."""
        if request.method == "POST" and (failed := next(failures, None)):
            return failed
        url = f"http://127.0.0.1:{container.port}{request.path}"
        reply = requests.request(request.method, url, data=request.body, timeout=120)
        return Answered(reply.status_code, reply.content)

    with answering(respond) as proxy:
        proxied = replace(container, port=proxy.port)
        engine_recipe = engine_spec.of(rank).parsed
        report = smoke_runs.prove(guard.node, proxied, engine_recipe, shown.append, threading.Event())
    assert (report.ok, report.failure) == (True, "")
    assert [line for line in shown if line.startswith("repeating a failed pass: the smoke suite failed in pass 1 of 2")]
