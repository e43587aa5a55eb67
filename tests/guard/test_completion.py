"""A question to a release, over real sockets: only the right release with 200 counts as an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sparkops.config.recipe import Recipe
from sparkops.config.serve import Task
from sparkops.gateway import commands
from sparkops.gateway.facts import GatewayFacts, ServiceFacts, SlotFacts
from sparkops.guard import completion
from sparkops.guard.completion import FAILURES, Completion, CompletionRequest, ReleaseHealth
from sparkops.guard.gateway_front import GatewayContainer, GatewayFront, task_of
from sparkops.guard.smoke_runs import Baking
from sparkops.guard_client.engine_spec import EngineSpec, rank_spec
from sparkops.guard_client.front import endpoints
from sparkops.names import Slot
from sparkops.nodes.http import MOST_BYTES
from sparkops.swap.model import Answer, Deployment, Replica
from tests.examples import IMAGE_ID, INPUTS, recipe
from tests.executors import AtOnce, NoThreads
from tests.http_server import Answer as HttpAnswer
from tests.http_server import Asked, answering
from tests.nodes.recording import RecordingNode

pytestmark = pytest.mark.local


def deployment(of: Recipe) -> Deployment:
    """A release of a recipe on one node."""
    data = of.model_dump(mode="json", exclude_defaults=True)
    given = {"recipe": data, "inputs": INPUTS, "image": IMAGE_ID, "slot": Slot.GREEN, "index": 0, "jobs": 1}
    spec = EngineSpec.model_validate({**given, "address": "10.0.0.1", "node": {"transport": "local"}})
    return Deployment("q-2", Slot.GREEN, (Replica((rank_spec(spec, "n1"),)),))


@contextmanager
def gateway(
    status: int, release: str, late: threading.Event | None = None, size: int = 0, path: str = ""
) -> Iterator[int]:
    """Answers every completion so, on a port of its own."""

    def respond(request: Asked) -> HttpAnswer:
        assert request.path == f"{path}{completion.COMPLETIONS}"
        assert (request.headers["x-sparkops-preview"], request.headers["x-sparkops-slot"]) == ("t0k3n", "green")
        if late:
            late.wait(30)
        return HttpAnswer(status, bytes(size), {"x-sparkops-release": release} if release else {})

    with answering(respond) as server:
        yield server.port


def ask(port: int, **more: Any) -> Completion:
    return CompletionRequest("chat", port, "q-2", Slot.GREEN, "t0k3n", **more).send().result


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
    with gateway(status, release) as port:
        assert ask(port) is expected


@pytest.mark.parametrize(
    ("task", "path", "body"),
    [
        ("embedding", "/v1/embeddings", {"model": "chat", "input": "1"}),
        ("rerank", "/v1/rerank", {"model": "chat", "query": "1", "documents": ["1"]}),
    ],
)
def test_a_release_is_tested_with_a_request_of_its_task(task: Task, path: str, body: Any) -> None:
    with answering(lambda _: HttpAnswer(500, b"no", {"x-sparkops-release": "q-2"})) as server:
        end = CompletionRequest("chat", server.port, "q-2", Slot.GREEN, "t0k3n", task=task).send()

    assert [(request.path, request.json) for request in server.requests] == [(path, body)]
    assert end.got == f"{path}: HTTP 500: 'no'"


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
    ("status", "release", "size", "got"),
    [
        (200, "q-2", 0, ""),
        (503, "q-2", 3, r"/v1/chat/completions: HTTP 503: '\x00\x00\x00'"),
        (200, "q-1", 0, "/v1/chat/completions: HTTP 200, of release q-1: ''"),
        (500, "", 0, "/v1/chat/completions: HTTP 500, of no release: ''"),
        (200, "q-2", 4 * MOST_BYTES, f"/v1/chat/completions: an answer of more than {MOST_BYTES} bytes"),
    ],
)
def test_what_came_instead_of_the_answer_is_kept(status: int, release: str, size: int, got: str) -> None:
    with gateway(status, release, size=size) as port:
        assert CompletionRequest("chat", port, "q-2", Slot.GREEN, "t0k3n").send().got == got


def test_of_a_long_answer_only_the_start_is_kept() -> None:
    with gateway(500, "q-2", size=100_000) as port:
        assert len(CompletionRequest("chat", port, "q-2", Slot.GREEN, "t0k3n").send().got) <= completion.MOST_GOT


def test_at_the_one_address_the_path_names_the_service() -> None:
    with gateway(200, "q-2", path="/chat") as port:
        assert ask(port, path="/chat") is Completion.RIGHT


def test_a_closed_port_says_nothing_of_a_release() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert ask(unused.getsockname()[1]) is Completion.CLOSED


@contextmanager
def ending(response: bytes) -> Iterator[int]:
    """Takes every connection, and closes it after these bytes, as HAProxy does above the limit of an address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end_each() -> None:
            with suppress(OSError):
                while True:
                    with server.accept()[0] as taken:
                        if response:
                            taken.recv(65536)
                            taken.sendall(response)

        thread = threading.Thread(target=end_each)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_connection_that_is_closed_at_once_says_nothing_of_a_release(encrypted: bool) -> None:
    health = ReleaseHealth(Answer.YES)
    with ending(b"") as port:
        for _ in range(FAILURES):
            health.learn(ask(port, encrypted=encrypted))
        assert health.answer is Answer.UNKNOWN


def test_a_response_that_breaks_off_is_wrong() -> None:
    with ending(b"HTTP/1.1 200 OK\r\nx-sparkops-release: q-2\r\nContent-Length: 9\r\n\r\n{}") as port:
        assert ask(port) is Completion.WRONG


def test_an_answer_that_does_not_come_is_late() -> None:
    end = threading.Event()
    with gateway(200, "q-2", end) as port:
        assert ask(port, answer_s=0.2) is Completion.LATE
        end.set()


@pytest.mark.parametrize(("size", "expected"), [(MOST_BYTES, Completion.RIGHT), (4 * MOST_BYTES, Completion.WRONG)])
def test_an_answer_that_is_too_long_is_wrong(size: int, expected: Completion) -> None:
    with gateway(200, "q-2", size=size) as port:
        assert ask(port) is expected


def test_tls_that_the_gateway_does_not_speak_is_wrong() -> None:
    with gateway(200, "q-2") as port:
        assert ask(port, encrypted=True) is Completion.WRONG


@dataclass
class Front:
    """The gateway's view of release q-2 in slot green, whose completions go to a port; each look is a minute later."""

    port: int
    check: str = ""
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.target = deployment(recipe())
        [(address, port)] = endpoints(self.target)
        servers = (f"{address}:{port}",)
        slot = SlotFacts("chat", Slot.GREEN, "q-2", "q-2", servers, servers)
        service = ServiceFacts("chat", self.port, "", "be_chat_green", {Slot.GREEN: slot})
        facts = GatewayFacts({"chat": service}, {}, loaded=True)
        node = RecordingNode("n1", {str(commands.TOKEN): "t0k3n"})
        container = GatewayContainer(node, facts=facts, read_s=0.0, clock=lambda: 0.0)
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
    with gateway(500, "q-2") as port:
        assert Front(port).failed() == "q-2 does not answer correctly: /v1/chat/completions: HTTP 500: ''"


def test_the_view_of_a_release_whose_answers_are_wrong_has_the_question() -> None:
    wrong = "questions: only 2 of 3 answers are right; expected at least 3; got '2+2?' answered with '5', not '4'"
    with gateway(200, "q-2") as port:
        assert Front(port, wrong).failed() == f"q-2 does not answer correctly: {wrong}"
        assert len(Front(port, wrong * 100).failed()) < completion.MOST_GOT + 100


def test_a_completion_for_which_no_thread_can_be_started_is_sent_by_a_later_look() -> None:
    """The error would end the lead of the service for good."""
    with gateway(500, "q-2") as port:
        lead = Front(port)
        lead.front.executor = NoThreads()
        view = lead.front.look((lead.target,), swapping=True, baked=lead.target)
        lead.front.executor = AtOnce()
        lead.now_s += 60.0

        assert view
        assert view.answer(lead.target) is Answer.UNKNOWN
        assert lead.failed().startswith("q-2 does not answer correctly")
