"""`docker stop` of one rank of a pair: its guard finds out, and tells the leader, which then restarts nothing."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.guard.disk.state import State
from sparkops.guard.follow.engines import ContainerReader, Engines
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.local_service import SETTLE_S
from sparkops.node.docker.facts import Container
from sparkops.swap.follower import Record, report
from sparkops.swap.model import Answer, RankSpec, Replica
from sparkops.swap.orders import order
from tests.guard.test_reproductions import BOOT, OLD, RELEASES, SERVING, runs
from tests.node.recording import RecordingNode

SINCE_UNTIL = re.compile(r"--since=(\S+) --until=(\S+)")

PAIR = replace(RELEASES[OLD], replicas=(Replica((OLD, RankSpec("n2", "old-r1"))),))


@dataclass
class Docker:
    """The only container of the node, as each read shows it. A read is as late as `ahead_s` says."""

    container: Container = field(default_factory=lambda: runs(OLD))
    ahead_s: float = 0.0

    def read(self, reader: ContainerReader) -> bool:
        reader.containers = {OLD.container: self.container}
        reader.began_s = time.monotonic() + self.ahead_s
        return True


@pytest.mark.parametrize(
    ("listed", "by_hand"),
    [
        ("kill 15\nstop ", True),
        ("kill 9", True),
        ("kill", True),
        ("kill 10\nkill 1\n", False),
        ("", False),
    ],
    ids=["docker stop", "docker kill", "a Docker that names no signal", "logs were rotated", "a crash"],
)
def test_the_guard_of_a_pair_s_rank_finds_out_that_an_operator_stopped_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, by_hand: bool
) -> None:
    docker, journal = Docker(), replace(SERVING, active=PAIR)
    monkeypatch.setattr(ContainerReader, "read", lambda reader: docker.read(reader))  # noqa: PLW0108 - binds the reader
    monkeypatch.setattr(Engines, "container", lambda *_: None)
    state, node = State(tmp_path, lambda: BOOT), RecordingNode("n1", {"docker events": listed})
    state.write_record("chat", Record(term=1, copy=journal, armed=OLD, alone=False, boot=BOOT.boot))
    local: Any = node
    follower = Follower(state, local, lambda _: None)
    service = follower._service("chat")
    service.adopt(order(journal, "n1", BOOT.boot))
    service.run(docker.container).note_health(Answer.YES)
    docker.container = replace(docker.container, state="exited")

    follower.poll()
    unchecked = report("n1", service.order, service.local(BOOT.boot)).engine(OLD.container)
    docker.ahead_s = SETTLE_S
    end_s = time.monotonic() + 10.0
    while not service.run(docker.container).checked:
        follower.poll()
        follower.wait(0.01)
        assert time.monotonic() < end_s
    follower.poll()
    checked = report("n1", service.order, service.local(BOOT.boot)).engine(OLD.container)
    follower.close()

    assert unchecked.by_hand, "the leader restarts nothing before it is known"
    assert (checked.by_hand, checked.state.running) == (by_hand, False)
    assert state.by_hand("chat") == (frozenset({OLD.container}) if by_hand else frozenset())


@pytest.mark.parametrize(("listed", "by_hand"), [("kill 15\nstop", True), ("", False)], ids=["docker stop", "a crash"])
def test_an_engine_whose_start_lies_ahead_of_the_clock_is_not_taken_for_stopped(
    monkeypatch: pytest.MonkeyPatch, listed: str, by_hand: bool
) -> None:
    """The clock was set back since. Docker refuses a `since` after `until`, and until it is known nothing restarts."""
    node: Any = RecordingNode("n1", {"docker events": listed})
    monkeypatch.setattr(Engines, "container", lambda *_: None)
    engines = Engines(node, lambda *_: None, print)

    assert engines.stopped_by_hand(replace(runs(OLD), started_at=time.time() + 3600.0)) is by_hand

    between = SINCE_UNTIL.search(str(node.ran[-1]))
    assert between
    assert float(between[1]) < float(between[2])


def test_what_ended_before_the_guard_started_is_no_stop_also_where_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node: Any = RecordingNode("n1", {"docker events": ""})
    began_s = time.time() - 5.0
    guard = replace(runs(OLD), started_at=began_s)
    monkeypatch.setattr(Engines, "container", lambda *_: guard)

    Engines(node, lambda *_: None, print).stopped_by_hand(replace(runs(OLD), started_at=time.time() + 3600.0))

    between = SINCE_UNTIL.search(str(node.ran[-1]))
    assert between
    assert float(between[1]) == pytest.approx(began_s, abs=0.01)
