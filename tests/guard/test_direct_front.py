"""What the leader concludes of a service without a gateway: from a scripted engine, and from a real HTTP server."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparkops.errors import NotReady
from sparkops.guard.completion import FAILURES, Completion
from sparkops.guard.direct_front import COUNTED_S, DirectFront, Inquiry, inquire
from sparkops.guard.environment import NodeClock
from sparkops.guard.state import DirectMap, State
from sparkops.guard_client.engine_spec import EngineSpec, rank_spec
from sparkops.names import Slot
from sparkops.swap import effects as act
from sparkops.swap.fleet_state import EngineReport, EngineState, GatewayView, Report
from sparkops.swap.model import Answer, Deployment, RankSpec, Replica
from tests import examples
from tests.executors import AtOnce
from tests.http_server import Answer as HttpAnswer
from tests.http_server import Asked, answering

OLD, NEW = (
    Deployment(name, slot, (Replica((RankSpec("n1", f"{name}-r0"),)),))
    for name, slot in (("old", Slot.BLUE), ("new", Slot.GREEN))
)
ENOUGH = 2 * FAILURES + 2
"""Seconds: a question is asked at one look, and its answer is learnt at the next."""
HEALTHY, LOADING, STOPPED = EngineState.HEALTHY, EngineState.LOADING, EngineState.STOPPED


def page(running: int, waiting: int = 0, tokens: int = 0) -> str:
    figures = {"num_requests_running": running, "num_requests_waiting": waiting}
    gauges = "".join(f"# TYPE vllm:{name} gauge\nvllm:{name} {value}\n" for name, value in figures.items())
    return f"{gauges}# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {tokens}\n"


@dataclass
class Node:
    """A node whose engines are in these states and answer so, and a clock that each look moves on by a second."""

    directory: Path
    states: dict[str, EngineState]
    says: Inquiry = field(default_factory=lambda: Inquiry(Completion.RIGHT, page(0)))
    known: bool = True
    now_s: float = 100.0
    inquired_releases: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = State(self.directory, lambda: NodeClock(0.0, "b"))
        self.view = self.leadership()

    def leadership(self) -> DirectFront:
        """A guard's process that begins to lead."""
        front = DirectFront(
            "chat",
            self.state,
            self.report,
            lambda _: None,
            self.inquire,
            lambda: self.now_s,
            AtOnce(),  # type: ignore[arg-type]
        )
        for item in (OLD, NEW):
            front.execute(act.PointSlot(item))
        return front

    def report(self) -> Report:
        if not self.known:
            raise NotReady("n1", "containers unknown")
        engines = tuple(EngineReport(f"{name}-r0", state) for name, state in self.states.items())
        return Report("n1", "b", 1, 1, 1, engines)

    def inquire(self, service: str, deployment: Deployment) -> Inquiry:
        assert service == "chat"
        self.inquired_releases.append(deployment.release)
        return self.says

    def look(self, seconds: int = 1) -> GatewayView:
        for _ in range(seconds):
            view = self.view.look((OLD, NEW), swapping=True)
            self.now_s += 1.0
        assert view is not None
        return view


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, {"old": HEALTHY, "new": STOPPED})


def test_the_map_holds_what_was_decided_and_outlives_the_process(node: Node) -> None:
    node.view.execute(act.SwitchTraffic(OLD))

    node.view = DirectFront("chat", node.state, node.report, lambda _: None)
    view = node.view.look((OLD, NEW), swapping=False)

    assert view is not None
    assert (view.active, dict(view.slots)) == (Slot.BLUE, {Slot.BLUE: "old", Slot.GREEN: "new"})
    assert node.state.direct("chat") == DirectMap("old", {Slot.BLUE: "old", Slot.GREEN: "new"})
    node.view.execute(act.SwitchTraffic(None))
    assert node.view.map.traffic == ""


def test_only_the_release_that_runs_is_asked_and_gets_the_answer(node: Node) -> None:
    view = node.look(ENOUGH)

    assert set(node.inquired_releases) == {"old"}
    assert view.answers == {Slot.BLUE: Answer.YES, Slot.GREEN: Answer.NO}


def test_without_a_report_of_the_containers_nothing_is_known(node: Node) -> None:
    node.known = False

    assert node.view.look((OLD,), swapping=True) is None
    assert node.inquired_releases == []


def test_a_release_that_is_in_no_slot_is_not_asked(node: Node) -> None:
    other = Deployment("other", Slot.BLUE, OLD.replicas)

    view = node.view.look((other,), swapping=True)

    assert view is not None
    assert (view.answers, view.open) == ({}, {})


def test_what_an_engine_did_not_answer_while_it_loaded_counts_no_more_once_it_has(node: Node) -> None:
    node.states["old"], node.says = LOADING, Inquiry(Completion.WRONG, None)
    assert node.look(ENOUGH).answers[Slot.BLUE] is Answer.NO

    node.states["old"], node.says = HEALTHY, Inquiry(Completion.RIGHT, page(0))

    assert node.look().answers[Slot.BLUE] is Answer.UNKNOWN
    assert node.look(2).answers[Slot.BLUE] is Answer.YES


@pytest.mark.parametrize(
    ("says", "count"),
    [
        (Inquiry(Completion.RIGHT, page(2, 3)), 5),
        (Inquiry(Completion.RIGHT, page(0)), 0),
        (Inquiry(Completion.RIGHT, None), None),
        (Inquiry(Completion.RIGHT, "atlas_requests 0\n"), 1),
        (Inquiry(Completion.RIGHT, ""), 1),
    ],
    ids=["busy", "idle", "no page", "an engine that does not count", "no metrics"],
)
def test_open_requests_are_those_that_the_engine_counts(node: Node, says: Inquiry, count: int | None) -> None:
    node.says = says

    assert node.look(2).open.get(Slot.BLUE) == count


def test_an_old_count_says_nothing(node: Node) -> None:
    node.look(2)
    node.view.engines["old"].pending = Future()  # a question that takes long
    node.now_s += COUNTED_S + 1.0

    assert Slot.BLUE not in node.look().open


def test_an_engine_that_has_stopped_or_answers_nothing_any_more_finishes_no_request(node: Node) -> None:
    assert node.look().open[Slot.GREEN] == 0
    node.says = Inquiry(Completion.LATE, None)

    assert Slot.BLUE not in node.look(3).open
    assert node.look(ENOUGH).open[Slot.BLUE] == 0


def test_an_engine_that_is_late_and_steps_is_busy(node: Node) -> None:
    node.look(2)
    for tokens in range(1, 8):
        node.says = Inquiry(Completion.LATE, page(4, tokens=tokens))
        view = node.look()

    assert (view.answers[Slot.BLUE], view.open[Slot.BLUE]) == (Answer.YES, 4)


def test_requests_that_are_cut_are_waited_for_no_more_until_the_traffic_returns(node: Node) -> None:
    node.says = Inquiry(Completion.RIGHT, page(7))
    node.look(2)

    assert node.view.execute(act.CutRequests(OLD)) == "7"
    assert node.look().open[Slot.BLUE] == 0
    node.view.execute(act.SwitchTraffic(OLD))
    assert node.look().open[Slot.BLUE] == 7


def direct_at(port: int) -> Deployment:
    recipe = examples.recipe(service="chat", serve={"port": port})
    spec = EngineSpec(
        recipe=recipe.model_dump(mode="json", exclude_none=True),
        inputs=examples.INPUTS,
        image="sha256:1",
        slot=Slot.BLUE,
        index=0,
        address="127.0.0.1",
        node={},
        jobs=1,
        direct=True,
    )
    return Deployment("q-1", Slot.BLUE, (Replica((rank_spec(spec, "n1"),)),))


def test_an_engine_is_asked_at_the_port_of_the_service_past_any_gateway() -> None:
    def respond(request: Asked) -> HttpAnswer:
        return HttpAnswer(200, page(3).encode() if request.path == "/metrics" else b'{"choices": []}')

    with answering(respond) as server:
        deployment = direct_at(server.port)
        assert inquire("chat", deployment) == Inquiry(Completion.RIGHT, page(3))
        assert [(request.method, request.path) for request in server.requests] == [
            ("POST", "/v1/chat/completions"),
            ("GET", "/metrics"),
        ]
        assert server.requests[0].json["model"] == "chat"
    assert inquire("chat", deployment) == Inquiry(Completion.WRONG, None)
