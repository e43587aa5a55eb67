"""A start that Docker refused is none: it is retried at growing intervals, and the budget of an hour stays whole."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sparkops.command import Command, Completed
from sparkops.errors import CommandFailed, ConnectionLost, NotReady
from sparkops.guard.disk.state import State
from sparkops.guard.environment import NodeClock
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.jobs import Jobs
from sparkops.guard.follow.local_service import LocalService
from sparkops.guard.follow.next_task import Moment, next_task
from sparkops.guard.follow.start import REFUSED_MOST_S, REFUSED_S
from sparkops.guard.follow.tasks import Job, Measure
from sparkops.node.local import LocalNode
from sparkops.swap import effects
from sparkops.swap.follower import Record, report
from sparkops.swap.journal import PAUSES_S, RESTARTS
from tests.guard.test_reproductions import OLD, SERVING, runs

BOOT = NodeClock(20.0, "second boot")
WHY = "could not select device driver\nnext: install it"


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    """The guard of a node that has just booted: the engine of its boot record has ended with the last boot."""
    state = State(tmp_path, lambda: BOOT)
    state.write_record("chat", Record(term=1, copy=SERVING, armed=OLD, boot="first boot"))
    follower = Follower(state, LocalNode("n1"), lambda _: None)
    service = follower._service("chat")
    ended = replace(runs(OLD), state="exited")
    service.update({OLD.container: ended}, 1.0)
    service.start(OLD.container).run.checked = True
    return follower


def at(service: LocalService, now_s: float) -> object:
    return next_task(service, Moment(BOOT.boot, False, -math.inf, now_s))


def refuse(follower: Follower, *, lost: bool = False) -> LocalService:
    service = follower._service("chat")
    follower.jobs.notes.write(service, effects.MarkRestart(OLD.container), BOOT.boot)
    follower.jobs.notes.refused(service, OLD.container, WHY, lost=lost)
    service.pending = ""
    return service


def test_refused_starts_use_up_no_budget_and_are_one_event(follower: Follower) -> None:
    for _ in range(2 * RESTARTS):
        service = refuse(follower)
    texts = [event["text"] for event in follower.state.events("chat")]

    assert service.record.restarts == 0
    assert follower.state.record("chat").restarts == 0
    assert texts == [
        "old-r0 starts from the boot record",
        "old-r0: not started, retried: could not select device driver",
    ]


def test_a_start_of_which_docker_says_nothing_counts(follower: Follower) -> None:
    assert refuse(follower, lost=True).record.restarts == 1


def test_starts_that_were_lost_are_as_far_apart_as_any_restarts(follower: Follower) -> None:
    """Three of them used up the hour in 15 s."""
    for pause_s in PAUSES_S:
        begun_s = time.monotonic()
        due_s = refuse(follower, lost=True).start(OLD.container).due_s
        assert due_s >= begun_s + pause_s


@dataclass
class Failing(Jobs):
    """Jobs of which each ends with an error."""

    error: Exception = field(default_factory=OSError)

    def _execute(self, *_: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "restarts"),
    [
        (CommandFailed(Completed("n1", Command(("docker", "start")), 1, "", "could not select device driver")), 0),
        (NotReady("n1", "dockerd does not answer"), 1),
        (ConnectionLost("n1", "the connection ended"), 1),
        (OSError("the socket is gone"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_a_start_that_docker_refuses_is_none(follower: Follower, error: Exception, restarts: int) -> None:
    jobs = Failing(follower.state, follower.node, follower.engines, lambda _: None, error=error)
    service = follower._service("chat")
    jobs.notes.write(service, effects.MarkRestart(OLD.container), BOOT.boot)

    jobs._work(service, Job(effects.StartEngine(OLD.container)))

    assert service.record.restarts == restarts
    assert service.start(OLD.container).refused


def test_the_next_attempt_waits_twice_as_long_each_time(follower: Follower) -> None:
    service = follower._service("chat")
    waits = []
    for _ in range(6):
        service.start(OLD.container).refuse(WHY, 100.0)
        waits.append(service.start(OLD.container).due_s - 100.0)

    assert waits == [min(REFUSED_S * 2**number, REFUSED_MOST_S) for number in range(6)]
    assert at(service, 100.0) is None
    assert at(service, 100.0 + REFUSED_MOST_S) == Measure(OLD.container)


def test_a_refusal_is_reported_as_a_start_that_has_not_happened(follower: Follower) -> None:
    service = refuse(follower)
    engine = report("n1", None, service.local(BOOT.boot)).engine(OLD.container)

    assert (engine.problem, engine.refused, engine.state.running) == (WHY, True, False)


def test_a_start_that_docker_accepts_ends_the_refusals(follower: Follower) -> None:
    service = refuse(follower)
    service.start(OLD.container).accept()

    assert (service.local(BOOT.boot).refused, service.start(OLD.container).refusals) == ({}, 0)


def test_starts_of_one_hour_are_apart_so_that_a_late_driver_is_in_time_for_one(follower: Follower) -> None:
    service = follower._service("chat")
    paused = []
    for pause_s in PAUSES_S:
        follower.jobs.notes.write(service, effects.MarkRestart(OLD.container), BOOT.boot)
        service.pending = ""
        due_s = service.start(OLD.container).due_s
        paused.append((at(service, due_s - 1.0), at(service, due_s)))
        assert due_s > pause_s

    assert paused == [(None, Measure(OLD.container))] * len(PAUSES_S)
