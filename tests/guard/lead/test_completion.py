"""A question to a release: only the right release with 200 counts as an answer."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest

from sparkops.config.recipe import Recipe
from sparkops.config.serve import Task
from sparkops.gateway.facts import GatewayFacts, ServiceFacts, SlotFacts
from sparkops.gateway.front import endpoints
from sparkops.guard.follow.smoke_runs import Baking
from sparkops.guard.lead import completion
from sparkops.guard.lead.completion import (
    FAILURES,
    PATHS,
    Completion,
    CompletionEnd,
    CompletionReply,
    ReleaseHealth,
    RequestFailure,
    body,
    judge,
)
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront, task_of
from sparkops.names import Slot
from sparkops.node.http import MOST_BYTES
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from sparkops.swap.model import Answer, Deployment, Replica
from tests.examples import IMAGE_ID, INPUTS, recipe
from tests.executors import AtOnce, NoThreads
from tests.node.recording import RecordingNode

pytestmark = pytest.mark.unit


def deployment(of: Recipe) -> Deployment:
    """A release of a recipe on one node."""
    data = of.model_dump(mode="json", exclude_defaults=True)
    given = {"recipe": data, "inputs": INPUTS, "image": IMAGE_ID, "slot": Slot.GREEN, "index": 0, "jobs": 1}
    spec = EngineSpec.model_validate({**given, "address": "10.0.0.1", "node": {"transport": "local"}})
    return Deployment("q-2", Slot.GREEN, (Replica((rank_spec(spec, "n1"),)),))


def came(status: int, release: str, text: str = "", size: int = 0, task: Task = "chat") -> CompletionEnd:
    """Judge a whole response to a request for q-2."""
    reply = CompletionReply(status=status, release=release, text=text, size=size or len(text))
    return judge(reply, {"q-2"}, PATHS[task])


def lost(failure: RequestFailure) -> CompletionEnd:
    """Judge a request for q-2 without a whole response."""
    return judge(CompletionReply(failure, "reset"), {"q-2"})


@pytest.mark.parametrize(
    ("status", "release", "expected"),
    [
        (200, "q-2", Completion.RIGHT),
        (200, "q-1", Completion.WRONG),
        (503, "q-2", Completion.WRONG),
        (500, "", Completion.WRONG),
        (503, "", Completion.WRONG),
        (429, "q-2", Completion.WRONG),
        (429, "", Completion.CLOSED),
    ],
)
def test_only_the_right_release_counts(status: int, release: str, expected: Completion) -> None:
    assert came(status, release).result is expected


@pytest.mark.parametrize(
    ("task", "sent"),
    [
        ("embedding", {"model": "chat", "input": "1"}),
        ("rerank", {"model": "chat", "query": "1", "documents": ["1"]}),
    ],
)
def test_a_release_is_tested_with_a_request_of_its_task(task: Task, sent: object) -> None:
    assert json.loads(body("chat", task)) == sent
    assert came(500, "q-2", "no", task=task).got == f"{PATHS[task]}: HTTP 500: 'no'"


@pytest.mark.parametrize("task", ["chat", "embedding", "rerank"])
def test_the_task_of_a_release_is_in_its_spec(task: Task) -> None:
    of = recipe(serve={"port": 8080, "task": task})

    assert task_of(deployment(of)) == task


def test_a_release_whose_spec_another_version_wrote_is_asked_to_chat() -> None:
    known = deployment(recipe())
    (replica,) = known.replicas
    unread = replace(known, replicas=(Replica(tuple(replace(rank, spec="{}") for rank in replica.ranks)),))

    assert task_of(unread) == "chat"


@pytest.mark.parametrize(
    ("status", "release", "text", "got"),
    [
        (200, "q-2", "", ""),
        (503, "q-2", "\0\0\0", r"/v1/chat/completions: HTTP 503: '\x00\x00\x00'"),
        (200, "q-1", "", "/v1/chat/completions: HTTP 200, of release q-1: ''"),
        (500, "", "", "/v1/chat/completions: HTTP 500, of no release: ''"),
    ],
)
def test_what_came_instead_of_the_answer_is_kept(status: int, release: str, text: str, got: str) -> None:
    assert came(status, release, text).got == got


def test_of_a_long_answer_only_the_start_is_kept() -> None:
    assert len(came(500, "q-2", "x" * 100_000).got) <= completion.MOST_GOT


@pytest.mark.parametrize("failure", [RequestFailure.UNREACHED, RequestFailure.UNANSWERED])
def test_a_gateway_that_takes_no_request_says_nothing_of_a_release(failure: RequestFailure) -> None:
    health = ReleaseHealth(Answer.YES)
    for _ in range(FAILURES):
        health.learn(lost(failure).result)
    assert health.answer is Answer.UNKNOWN


def test_a_response_that_breaks_off_is_wrong_and_one_that_does_not_come_is_late() -> None:
    assert lost(RequestFailure.BROKEN) == CompletionEnd(
        Completion.WRONG, "/v1/chat/completions: the connection broke: reset"
    )
    assert lost(RequestFailure.LATE).result is Completion.LATE


@pytest.mark.parametrize(("size", "expected"), [(MOST_BYTES, Completion.RIGHT), (MOST_BYTES + 1, Completion.WRONG)])
def test_an_answer_that_is_too_long_is_wrong(size: int, expected: Completion) -> None:
    assert came(200, "q-2", size=size).result is expected


class Answered(GatewayContainer):
    """A gateway whose every probe gets this status from q-2."""

    status = 500

    def probe(self, service: str, deployment: Deployment) -> CompletionEnd:
        assert service == "chat"
        return came(self.status, deployment.release)


@dataclass
class Front:
    """The gateway's view of q-2 in slot green, whose completions get this status; each look is a minute later."""

    status: int = 500
    check: str = ""
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.target = deployment(recipe())
        [place] = endpoints(self.target)
        servers = (f"{place.address}:{place.port}",)
        slot = SlotFacts("chat", Slot.GREEN, "q-2", "q-2", servers, servers)
        service = ServiceFacts("chat", 8000, "", "be_chat_green", {Slot.GREEN: slot})
        facts = GatewayFacts({"chat": service}, {}, loaded=True)
        container = Answered(RecordingNode("n1"), facts=facts, read_s=0.0, clock=lambda: 0.0)
        container.status = self.status
        self.front = GatewayFront("chat", container, clock=lambda: self.now_s, executor=AtOnce())
        self.front.baking = Baking(AtOnce(), lambda _: None, lambda _: self.check, lambda: self.now_s)

    def failed(self, looks: int = 8) -> str:
        """Return what the view says of the release after some looks."""
        for _ in range(looks):
            view = self.front.look((self.target,), swapping=True, baked=self.target)
            self.now_s += 60.0
        assert view
        assert view.answer(self.target) is Answer.NO
        return view.failed(self.target)


def test_the_view_of_a_release_that_fails_has_the_answer_of_its_last_completion() -> None:
    assert Front().failed() == "q-2 does not answer correctly: /v1/chat/completions: HTTP 500: ''"


def test_the_view_of_a_release_whose_answers_are_wrong_has_the_question() -> None:
    wrong = "questions: only 2 of 3 answers are right; expected at least 3; got '2+2?' answered with '5', not '4'"
    assert Front(200, wrong).failed() == f"q-2 does not answer correctly: {wrong}"
    assert len(Front(200, wrong * 100).failed()) < completion.MOST_GOT + 100


def test_a_completion_for_which_no_thread_can_be_started_is_sent_by_a_later_look() -> None:
    """The error would end the lead of the service for good."""
    lead = Front()
    lead.front.executor = NoThreads()
    view = lead.front.look((lead.target,), swapping=True, baked=lead.target)
    lead.front.executor = AtOnce()
    lead.now_s += 60.0

    assert view
    assert view.answer(lead.target) is Answer.UNKNOWN
    assert lead.failed().startswith("q-2 does not answer correctly")
