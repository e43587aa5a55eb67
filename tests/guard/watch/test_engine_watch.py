"""The watch of a guard: what it keeps, notes and reports, with a scripted engine and the files of a guard."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Command, Completed
from sparkops.engines.vllm.figures import STEPS
from sparkops.errors import CommandFailed, NotReady, SparkopsError
from sparkops.exchange import Reply, Request
from sparkops.guard.disk.state import State
from sparkops.guard.environment import NodeClock
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.local_service import PromotedRank
from sparkops.guard.report.node_report import Sampled
from sparkops.guard.watch.engine_watch import WATCH_S, EngineWatcher
from sparkops.names import Slot
from sparkops.node.host import Clocks
from sparkops.node.local import LocalNode
from sparkops.serving import engine_spec
from sparkops.serving.smoke.prompts import COMPLETIONS
from sparkops.serving.smoke.results import CheckFinding, CheckVerdict, Entry, SmokeReport
from sparkops.serving.watch.finding import read_findings
from sparkops.serving.watch.pace import EVERY_S, LAST, PAST, WARM_S
from sparkops.serving.watch.rules import STUCK
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Replica
from sparkops.swap.orders import order
from tests.examples import container, rank
from tests.guard.promoted import promoted_rank

pytestmark = pytest.mark.unit
QUICK: dict[str, Any] = {
    "swap": {"stall_s": 20.0},
    "probe": {"startup": {"compile_stall_s": 20.0}},
}


SILENT = SmokeReport(0, 1, (CheckVerdict("health", 1, 0.1, CheckFinding("no answer within 10 s")),), (), 0.1)


LOW = (Clocks(702, 3003, 96),)


class Kept:
    """An executor without threads."""

    def submit(self, fn: Any, /, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args))
        return future


@dataclass
class Node:
    """A node with one promoted engine, and the watch of its guard."""

    directory: Path
    ranks: list[PromotedRank] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 1.0))
    now_s: float = 0.0
    lines: list[str] = field(default_factory=list)
    report: SmokeReport = SILENT
    tok_s: float | None = 20.0
    """The speed that is measured."""
    sent: int = 0
    """Questions and streams that the engine got."""
    clocks: list[tuple[Clocks, ...] | SparkopsError] = field(default_factory=list)
    """What the driver answers, one after the other, and then nothing."""
    told: list[tuple[str, str]] = field(default_factory=list)
    """What the leader is to learn of the engine, at each look: why it is dead, and what is garbage in its answers."""

    def __post_init__(self) -> None:
        self.promoted = promoted_rank(**QUICK)
        self.rank = self.promoted.rank
        self.ranks, self.executor = [self.promoted], Kept()
        self.state = State(self.directory, lambda: NodeClock(self.now_s, "boot"))
        self.follower = Follower(self.state, LocalNode("n1"), self.lines.append)
        executor: Any = self.executor
        self.watcher = EngineWatcher(
            LocalNode("n1"),
            self.follower.jobs.notes,
            lambda: self.ranks,
            lambda name: Sampled(name, "", self.now_s, {"healthy": True, "first": self.figures}),
            self.lines.append,
            lambda _name, _started_at, dead, garbled: self.told.append((dead, garbled)),
            send=lambda *_: self._sent(self.report),
            measure=lambda *_: self._sent(self.tok_s),
            read_clocks=lambda *_: self._clocks(),
            executor=executor,
            clock=lambda: self.now_s,
            now=lambda: 1000.0 + self.now_s,
        )

    def _sent(self, answer: Any) -> Any:
        self.sent += 1
        return answer

    def _clocks(self) -> tuple[Clocks, ...]:
        answer = self.clocks.pop(0) if self.clocks else ()
        if isinstance(answer, SparkopsError):
            raise answer
        return answer

    def looks(self, number: int) -> None:
        for _ in range(number):
            self.now_s += WATCH_S
            self.watcher.look()

    @property
    def texts(self) -> list[str]:
        return [event["text"] for event in self.state.events("chat") if event["kind"] == "finding"]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    return Node(tmp_path)


def test_a_stall_is_noted_when_it_begins_and_when_it_ends_and_reported_meanwhile(node: Node) -> None:
    node.looks(30)
    name = node.rank.container
    (reported,) = read_findings("n1", node.watcher.findings())
    node.figures = {**node.figures, STEPS[0]: 2.0}
    node.looks(1)

    assert (reported.code, reported.service, reported.container, reported.node) == ("STALLED", "chat", name, "n1")
    assert reported.since == 1000.0 + WATCH_S
    assert "2 requests running or waiting" in reported.detail
    assert [text.split(": no")[0] for text in node.texts] == [f"{name}: STALLED", f"{name}: STALLED: ended"]
    assert node.watcher.findings() == []


def test_the_leader_learns_of_an_engine_that_is_dead_until_it_makes_a_step(node: Node) -> None:
    node.looks(30)
    node.figures = {**node.figures, STEPS[0]: 2.0}
    before = node.told[-1]
    node.looks(1)

    assert node.told[0] == ("", "")
    assert "2 requests running or waiting" in before[0]
    assert node.told[-1] == ("", "")


def test_a_release_that_changes_is_watched_no_longer_and_its_findings_end(node: Node) -> None:
    node.looks(30)
    node.ranks = []
    node.looks(1)
    assert node.told[-1] == ("", "")

    assert node.watcher.findings() == []
    assert node.texts[-1].endswith("STALLED: no longer watched: its release changes, or was stopped")


class NoThread:
    """An executor whose questions end with an error that no question raises by itself."""

    sent = 0

    def submit(self, *_: object) -> Future[Any]:
        self.sent += 1
        future: Future[Any] = Future()
        future.set_exception(RuntimeError("can't start new thread"))
        return future


def test_a_question_that_fails_for_another_reason_is_asked_again_and_keeps_no_other_engine_unwatched(
    node: Node,
) -> None:
    node.figures = dict.fromkeys(STEPS, 0.0)
    executor: Any = NoThread()
    node.watcher.executor = executor
    other = replace(node.rank, container="other")
    down = replace(node.promoted, rank=other, container=None)
    node.ranks = [node.promoted, down]

    errors = 0
    for _ in range(60):
        try:
            node.looks(1)
        except RuntimeError:
            errors += 1

    assert (executor.sent, errors) == (9, 9)
    assert [(found.container, found.code) for found in read_findings("n1", node.watcher.findings())] == [
        ("other", "RANK_DOWN")
    ]


@pytest.mark.parametrize("changes", [{"unknown": True}, {"head": False}], ids=["leased or loading", "a rank above 0"])
def test_no_question_is_sent_and_nothing_found_where_nothing_is_known(node: Node, changes: dict[str, Any]) -> None:
    node.ranks = [replace(node.promoted, **changes)]
    node.looks(60)

    assert (node.watcher.findings(), node.sent) == ([], 0)


def test_a_busy_engine_that_makes_steps_gets_no_question(node: Node) -> None:
    for step in range(60):
        node.figures = {**node.figures, STEPS[0]: float(step)}
        node.looks(1)

    assert (node.watcher.findings(), node.sent) == ([], 0)


def test_an_idle_engine_gets_one_question_a_minute(node: Node) -> None:
    node.figures = dict.fromkeys(STEPS, 0.0)
    node.looks(60)

    assert node.sent == 9


@pytest.mark.parametrize(
    ("change", "watched"),
    [
        ({}, True),
        ({"stopping": True}, False),
        ({"active": None}, False),
    ],
    ids=["promoted", "stopping", "none active"],
)
def test_only_the_ranks_of_a_promoted_release_are_watched(node: Node, change: dict[str, Any], watched: bool) -> None:
    active = Deployment("q-1", Slot.BLUE, (Replica((node.rank,)),))
    journal = replace(Journal("chat", "n1", active=active, revision=3), **change)
    with node.follower.jobs.lock:
        service = node.follower._service("chat")
        service.order = order(journal, "n1", "boot")

    found = node.follower.promoted()

    assert [rank.rank.container for rank in found] == ([node.rank.container] if watched else [])
    assert all(rank.unknown for rank in found), "Docker was not read yet"


@pytest.mark.parametrize("refused", ["", "memory lacks"])
def test_an_engine_that_waits_for_another_load_is_about_to_start_unless_refused(node: Node, refused: str) -> None:
    active = Deployment("q-1", Slot.BLUE, (Replica((node.rank,)),))
    journal = Journal("chat", "n1", active=active, revision=3)
    name, digest = node.rank.container, engine_spec.digest(node.rank)
    stopped = replace(container(rank(**QUICK)), name=name, spec=digest, state="exited")
    with node.follower.jobs.lock:
        service = node.follower._service("chat")
        service.record = Record(copy=journal, armed=node.rank, term=1)
        service.order = order(journal, "n1", "boot")
        service.update({name: stopped}, 1.0)
        service.run(stopped).checked = True
        service.start(name).refused = refused

    (found,) = node.follower.promoted()

    assert found.starting is not bool(refused)


def test_during_a_swap_nothing_is_watched(node: Node) -> None:
    replicas = (Replica((node.rank,)),)
    journal = Journal("chat", "n1", active=Deployment("q-1", Slot.BLUE, replicas), revision=3)
    journal = journal.begun("1", Mode.BESIDE, Deployment("q-2", Slot.GREEN, replicas), automatic=True)
    with node.follower.jobs.lock:
        node.follower._service("chat").order = order(journal, "n1", "boot")

    assert node.follower.promoted() == []


def serves(node: Node, trouble: str = "", **states: Any) -> list[PromotedRank]:
    """Let the node have one rank of a replica on two, of which the other one is r1 on n2; return what is watched."""
    other = replace(node.rank, node="n2", container="r1")
    active = Deployment("q-1", Slot.BLUE, (Replica((node.rank, other)),))
    journal = replace(Journal("chat", "n1", active=active, revision=3), trouble=trouble)
    name, digest = node.rank.container, engine_spec.digest(node.rank)
    stopped = replace(container(rank(**QUICK)), name=name, spec=digest, state="exited")
    with node.follower.jobs.lock:
        service = node.follower._service("chat")
        service.record = Record(copy=journal, armed=node.rank, alone=False, term=1)
        service.order = order(journal, "n1", "boot")
        service.update({name: stopped}, 1.0)
        service.run(stopped).checked = True
        for key, value in states.items():
            setattr(service.start(name), key, value)
    return node.follower.promoted()


def test_a_replica_of_which_an_operator_stopped_a_rank_elsewhere_is_not_down(node: Node) -> None:
    assert [found.rank.container for found in serves(node)] == [node.rank.container]
    assert serves(node, trouble="r1 was stopped by hand") == []
    assert [found.rank.container for found in serves(node, trouble="other was stopped by hand")] == [
        node.rank.container
    ]


def test_a_line_on_the_progress_of_an_earlier_start_is_no_start(node: Node) -> None:
    """Nothing removes it where a start was given up: RANK_DOWN would be hidden for ever."""
    (found,) = serves(node, progress="waiting for the answer of another guard")

    assert (found.starting, found.hindered) == (False, "")


@pytest.mark.parametrize("hindered", [{"refused": "memory not freed within 60 s"}, {"refusals": 3}])
def test_a_start_that_is_retried_in_vain_is_not_about_to_happen(node: Node, hindered: dict[str, Any]) -> None:
    (found,) = serves(node, **hindered)
    node.follower._service("chat").pending = node.rank.container
    (pending,) = node.follower.promoted()

    assert (found.starting, pending.starting) == (False, False)
    assert found.hindered == hindered.get("refused", "Docker refuses it")


RIGHT = '{"choices": [{"message": {"content": "391"}}], "usage": {"completion_tokens": 1, "prompt_tokens": 9}}'
ENTRY = Entry("questions", 1, 0.0, Request(COMPLETIONS, {}), Reply(200, ((0.1, RIGHT),)), ok=True)
ANSWERED = SmokeReport(1, 1, (), (ENTRY,), 0.1)


def idle_alone(node: Node) -> None:
    node.figures, node.report = dict.fromkeys(STEPS, 0.0), ANSWERED
    node.ranks = [replace(node.promoted, alone=True)]


def test_an_engine_that_is_slower_than_its_past_is_found_by_the_next_guard_too(node: Node) -> None:
    idle_alone(node)
    node.looks(int((WARM_S + PAST * EVERY_S) / WATCH_S))
    kept = node.state.paces("chat")["q-1"]
    node.tok_s = 10.0
    node.looks(int(LAST * EVERY_S / WATCH_S))
    (found,) = read_findings("n1", node.watcher.findings())
    again = Node(node.directory)
    idle_alone(again)
    again.looks(1)

    assert (kept.past, kept.slow) == ((20.0,) * PAST, False)
    assert (found.code, found.detail.partition(" in")[0]) == ("SLOW", "10.0 tokens/s")
    assert [finding.code for finding in read_findings("n1", again.watcher.findings())] == ["SLOW"]


@pytest.mark.parametrize("unmeasured", [{"tok_s": None}, {"alone": False}], ids=["other requests", "beside another"])
def test_a_speed_that_cannot_be_measured_counts_for_nothing(node: Node, unmeasured: dict[str, Any]) -> None:
    idle_alone(node)
    node.tok_s = unmeasured.get("tok_s", 20.0)
    node.ranks = [replace(node.promoted, alone=unmeasured.get("alone", True))]
    node.looks(int((WARM_S + 3 * EVERY_S) / WATCH_S))

    assert node.state.paces("chat") == {}


def test_a_file_of_speeds_that_cannot_be_read_stops_no_watch(node: Node) -> None:
    idle_alone(node)
    (node.directory / "services" / "chat").mkdir(parents=True)
    (node.directory / "services" / "chat" / "paces.json").write_text("damaged")
    node.looks(int((WARM_S + EVERY_S) / WATCH_S))

    assert node.watcher.findings() == []
    assert any("speed so far not read" in line for line in node.lines)


@pytest.mark.parametrize(("other", "alone"), [({}, False), ({"state": "exited"}, True)], ids=["running", "stopped"])
def test_another_engine_on_the_node_is_one_that_may_take_its_speed(
    node: Node, other: dict[str, Any], alone: bool
) -> None:
    (found,) = serves(node)
    assert not found.alone, "the other rank is on n2"

    active = Deployment("q-1", Slot.BLUE, (Replica((node.rank,)),))
    with node.follower.jobs.lock:
        service = node.follower._service("chat")
        service.order = order(Journal("chat", "n1", active=active, revision=4), "n1", "boot")
        beside = replace(container(rank(**QUICK)), name="beside", **other)
        service.update({**service.containers, "beside": beside}, 2.0)
    (found,) = node.follower.promoted()

    assert found.alone is alone


def test_a_gpu_at_low_clocks_is_a_finding_with_the_next_step(node: Node) -> None:
    node.clocks = [LOW] * STUCK
    for number in range(STUCK * 13):
        node.figures = {**node.figures, STEPS[0]: float(number)}
        node.looks(1)

    (found,) = node.watcher.findings()
    assert (found["code"], found["detail"]) == ("CLOCKS_LOW", "the GPU runs at 702 of 3003 MHz while 96 % busy")
    assert "on n1, shows whether heat or power is the reason; otherwise sparkops node drain n1, then sudo" in str(
        found["next_step"]
    )


def test_a_container_that_shows_no_clocks_is_not_asked_again(node: Node) -> None:
    completed = Completed("n1", Command(("docker", "exec")), 127, "", "nvidia-smi: not found")
    node.clocks = [CommandFailed(completed), *[LOW] * STUCK]
    for number in range(STUCK * 20):
        node.figures = {**node.figures, STEPS[0]: float(number)}
        node.looks(1)

    assert len(node.clocks) == STUCK
    assert node.watcher.findings() == []
    assert node.promoted.container
    node.ranks = [replace(node.promoted, container=replace(node.promoted.container, started_at=99.0))]
    node.looks(15)
    assert len(node.clocks) == STUCK - 1


@pytest.mark.parametrize(
    "error",
    [
        NotReady("n1", "docker does not answer"),
        CommandFailed(Completed("n1", Command(("docker", "exec")), 1, "", "container is not running")),
    ],
    ids=["Docker does not answer", "the program failed"],
)
def test_an_error_is_logged_and_the_next_sample_is_read(node: Node, error: SparkopsError) -> None:
    node.clocks = [error, LOW]
    node.looks(30)

    assert node.clocks == []
    assert [line for line in node.lines if "clocks not read" in line]
