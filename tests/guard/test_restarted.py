"""A guard that has just started beside engines that run: what it does not know yet is neither loading nor dead."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparkops.engines import endpoints
from sparkops.engines.vllm.start_log import LOG
from sparkops.guard.disk.state import State
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.loading import Loaded
from sparkops.guard.follow.local_service import LocalService
from sparkops.guard.follow.tasks import Job, Measure
from sparkops.guard.watch.memory_floor import MemoryFloor
from sparkops.node.docker.facts import Container
from sparkops.node.local import LocalNode
from sparkops.serving.memory.relief import LOOKS
from sparkops.serving.startup.verdict import Watch
from sparkops.swap.follower import Record, report
from sparkops.swap.journal import HOUR_S
from sparkops.swap.model import Answer, Mode, Phase
from tests import examples
from tests.guard.test_reproductions import BOOT, OLD, SERVING, begun, runs
from tests.node.recording import RecordingNode
from tests.node.threads import no_thread_starts
from tests.ports import free_port
from tests.serving.smoke.server import to

PATIENCE_S = 60.0
SERVES, FAILS = HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE


@contextmanager
def engine(status: HTTPStatus | None = SERVES) -> Iterator[int]:
    """A server whose /health has this status, or none in time; the port is the result."""
    over = threading.Event()

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status is None:
                over.wait(PATIENCE_S)
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            over.set()
            server.shutdown()


def until(true: Callable[[], Any]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def restarted(directory: Path, container: Container, lines: list[str]) -> tuple[Follower, LocalService]:
    """A new process of the guard: the promoted engine of its boot record runs, and has for days."""
    state = State(directory, lambda: BOOT)
    state.write_record("chat", Record(term=1, copy=SERVING, armed=OLD))
    follower = Follower(state, LocalNode("n1"), lines.append)
    service = follower._service("chat")
    service.update({OLD.container: container}, 1.0)
    follower._note_expendable()
    return follower, service


def killed(follower: Follower) -> list[str]:
    """What memory relief ends with 3.5 GiB of memory left."""
    node = RecordingNode("n1")
    floor = MemoryFloor(follower, node, lambda _: None, lambda: 3.5)
    for _ in range(LOOKS):
        floor.look()
    return [str(command) for command in node.ran]


def test_the_promoted_engine_is_not_killed_before_its_health_is_known(tmp_path: Path) -> None:
    follower, service = restarted(tmp_path, runs(OLD), [])

    assert killed(follower) == []
    assert service.loads, "it may load, so nothing else starts to load"


def test_what_no_thread_could_be_started_for_is_begun_again_later(tmp_path: Path) -> None:
    with engine() as port:
        container = replace(runs(OLD), port=port)
        follower, service = restarted(tmp_path, container, [])
        jobs, run = follower.jobs, service.run(container)
        jobs.retry_s, jobs.user = 0.01, os.geteuid()
        begins: tuple[Callable[[], None], ...] = (
            lambda: jobs.watch_starts(service, BOOT.boot),
            lambda: jobs.check_stop(service, container),
            lambda: jobs.begin(service, Job(Measure(OLD.container))),
        )
        for begin in begins:
            with no_thread_starts(), pytest.raises(RuntimeError, match="can't start new thread"):
                begin()
        assert (run.watch, run.checking, service.job) == (None, False, None)

        jobs.watch_starts(service, BOOT.boot)
        until(lambda: run.loaded is Answer.YES)
        follower.close()


@pytest.mark.parametrize(
    ("status", "kills", "loads"),
    [(SERVES, [], False), (FAILS, ["docker kill old-r0"], True), (None, [], True)],
    ids=["serves", "loads", "is late"],
)
def test_health_decides_without_a_look_at_the_log_or_the_recipe(
    tmp_path: Path, status: HTTPStatus | None, kills: list[str], loads: bool
) -> None:
    """The spec of this engine is of another version, and no Docker answers here."""
    with engine(status) as port, to(port)() as asking:
        container = replace(runs(OLD), port=port)
        follower, service = restarted(tmp_path, container, [])
        if status is None:
            service.run(container).note_health(endpoints.health(asking, timeout_s=0.1))
        else:
            follower.jobs.retry_s, follower.jobs.user = 0.01, os.geteuid()
            follower.jobs.watch_starts(service, BOOT.boot)
            until(lambda: service.start(OLD.container).run.loaded is not Answer.UNKNOWN)
        follower._note_expendable()
        assert killed(follower) == kills
        assert service.loads is loads
        follower.close()


def test_a_server_that_is_late_is_unknown_and_one_that_refuses_is_not() -> None:
    with engine(None) as port, to(port)() as asking:
        assert endpoints.health(asking, timeout_s=0.1) is Answer.UNKNOWN
    with engine(FAILS) as port, to(port)() as asking:
        assert endpoints.health(asking) is Answer.NO
    with to(free_port())() as asking:
        assert endpoints.health(asking) is Answer.NO


def test_the_leader_learns_what_the_watch_finds_of_this_run_in_its_first_words(tmp_path: Path) -> None:
    follower, service = restarted(tmp_path, runs(OLD), [])
    run = runs(OLD).started_at

    def engine_report() -> tuple[str, str]:
        known = report("n1", None, service.local(BOOT.boot)).engine(OLD.container)
        return known.dead, known.garbled

    for seconds in (300, 310):
        follower.note_watch(OLD.container, run, dead=f"no step for {seconds} s", garbled="")
    assert engine_report() == ("no step for 300 s", "")
    follower.note_watch(OLD.container, run, dead="", garbled="one character")
    assert engine_report() == ("", "one character")

    follower.note_watch(OLD.container, run - 1.0, dead="an earlier run", garbled="")
    assert engine_report() == ("", "one character")
    service.update({OLD.container: replace(runs(OLD), started_at=run + 1.0)}, 2.0)
    assert engine_report() == ("", "")


@pytest.mark.parametrize(
    ("health", "dead"),
    [(Answer.UNKNOWN, "did not start: no progress for 180 s"), (Answer.NO, "")],
    ids=["hangs", "loads"],
)
def test_an_engine_that_hung_before_its_guard_started_is_dead_once_it_makes_no_progress(
    tmp_path: Path, health: Answer, dead: str
) -> None:
    """Without a verdict nothing else would load on its node, and no leader would restart it."""
    follower, service = restarted(tmp_path, runs(OLD), [])
    run = service.run(runs(OLD))
    run.note_health(health)
    given_up = Loaded(Watch(examples.recipe().probe.startup, LOG), "did not start: no progress for 180 s")

    follower.jobs._loaded(service, runs(OLD), run, examples.recipe(), given_up)
    follower.note_watch(OLD.container, runs(OLD).started_at, dead="", garbled="")  # it is not watched meanwhile

    def reported() -> str:
        return report("n1", None, service.local(BOOT.boot)).engine(OLD.container).dead

    assert reported() == dead
    run.note_health(Answer.YES)
    follower.note_watch(OLD.container, runs(OLD).started_at, dead="", garbled="")
    assert reported() == ""


def test_an_engine_that_this_process_saw_start_loads_until_it_answers(tmp_path: Path) -> None:
    _, service = restarted(tmp_path, replace(runs(OLD), state="exited"), [])
    started = replace(runs(OLD), started_at=2.0)
    service.update({OLD.container: started}, 2.0)

    service.run(started).note_health(Answer.UNKNOWN)

    assert list(service.expendable()) == ["old-r0"]


@pytest.mark.parametrize(
    ("phase", "expendable"),
    [(None, []), (Phase.LOAD, ["old-r0"]), (Phase.VERIFY, [])],
    ids=["rests", "loads", "loaded"],
)
def test_a_worker_rank_has_loaded_as_the_kept_journal_says(
    tmp_path: Path, phase: Phase | None, expendable: list[str]
) -> None:
    """Without an order: the leader's node is lost."""
    _, service = restarted(tmp_path, replace(runs(OLD), rank=1, ranks=2), [])
    if phase:
        swap = begun(phase, Mode.BESIDE).swap
        assert swap
        assert SERVING.active
        restart = replace(SERVING, swap=replace(swap, target=SERVING.active, source=SERVING.active))
        service.record = replace(service.record, copy=restart)

    assert list(service.expendable()) == expendable
    assert service.loads is bool(expendable)


def learned(directory: Path, *reads: Container) -> list[dict[str, Any]]:
    """The starts that a guard remembers after the last of these containers has answered."""
    follower, service = restarted(directory, reads[0], [])
    for number, container in enumerate(reads[1:], 2):
        service.update({OLD.container: container}, float(number))
    answered = Watch(examples.recipe().probe.startup, LOG, healthy=True)
    run = service.start(OLD.container).run
    follower.jobs._loaded(service, reads[-1], run, examples.recipe(), Loaded(answered))
    return follower.state.starts("chat")


def test_only_a_start_that_was_watched_from_its_beginning_is_learned(tmp_path: Path) -> None:
    exited = replace(runs(OLD), state="exited")

    assert learned(tmp_path / "days old", runs(OLD), runs(OLD)) == []
    assert len(learned(tmp_path / "new", exited, replace(runs(OLD), started_at=2.0))) == 1


def test_a_disk_that_takes_no_note_ends_no_watch(tmp_path: Path) -> None:
    """The budget of restarts is due to be whole again, and cannot be written: the engine is watched all the same."""
    with engine() as port:
        lines: list[str] = []
        follower, service = restarted(tmp_path, replace(runs(OLD), port=port), lines)
        service.record = replace(service.record, restarts=2)
        service.restarted_s = BOOT.now_s - HOUR_S
        record = tmp_path / "services/chat/record"
        record.unlink()
        record.mkdir()
        follower._reader.containers = {OLD.container: replace(runs(OLD), port=port)}
        follower.jobs.user = os.geteuid()

        follower._poll("chat")
        until(lambda: service.loaded(service.containers[OLD.container]) is Answer.YES)
        follower.close()

    assert [line.partition(":")[0] for line in lines] == ["chat"]
    assert "restarts not reset" in lines[0]
    assert service.record.restarts == 2, "until it can be written"
