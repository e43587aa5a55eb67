"""Asking a real HTTP server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from requests import Session

from sparkops.config.smoke import Question
from sparkops.nodes.http import session
from sparkops.nodes.local import LocalNode
from sparkops.probes import openai
from tests.http_server import Answer, Asked, Respond, answering

QUESTION = Question(ask="What is the capital of France?", expect="Paris", max_tokens=32, extra={"top_k": 1})


@contextmanager
def server(respond: Respond) -> Iterator[Session]:
    with answering(respond) as listening, session(LocalNode("here"), listening.port) as asking:
        yield asking


@pytest.fixture
def nobody() -> Iterator[Session]:
    """A session to a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with session(LocalNode("here"), port) as asking:
        yield asking


def said(text: str | None, tokens: int = 2) -> Answer:
    message = {"role": "assistant", "content": text}
    body = {"choices": [{"index": 0, "message": message}], "usage": {"completion_tokens": tokens}}
    return Answer(body=json.dumps(body).encode())


def ask(respond: Respond) -> openai.Answer:
    with server(respond) as asking:
        return openai.ask(asking, "chat", QUESTION)


@pytest.mark.parametrize("text", ["Paris", " It is PARIS, of course.\n"])
def test_the_right_answer(text: str) -> None:
    answer = ask(lambda _: said(text, tokens=7))

    assert (answer.ok, answer.text, answer.tokens, answer.problem) == (True, text.strip(), 7, "")
    assert answer.took_s > 0


def test_the_question_is_asked_greedily_and_by_the_service_s_name() -> None:
    asked: list[Asked] = []

    def respond(request: Asked) -> Answer:
        asked.append(request)
        return said("Paris")

    ask(respond)

    [request] = asked
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.json == {
        "model": "chat",
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 32,
        "temperature": 0,
        "top_k": 1,
    }


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (said("Lyon"), "asked 'What is the capital of France?', expected 'Paris' in the answer, got 'Lyon'"),
        (said(None), "asked 'What is the capital of France?', expected 'Paris' in the answer, got ''"),
        (
            said("!" * 500),
            f"asked 'What is the capital of France?', expected 'Paris' in the answer, got '{'!' * 200}'",
        ),
        (Answer(500, b"EngineDeadError"), "HTTP 500: EngineDeadError"),
        (Answer(404, b'{"error": "no model chat"}'), 'HTTP 404: {"error": "no model chat"}'),
        (Answer(200, b"<html>Paris</html>"), "not an OpenAI answer: <html>Paris</html>"),
        (Answer(200, b'{"choices": []}'), 'not an OpenAI answer: {"choices": []}'),
        (Answer(200, b'["Paris"]'), 'not an OpenAI answer: ["Paris"]'),
        (Answer(500, b"x" * 1000), "HTTP 500: " + "x" * 300),
    ],
    ids=["wrong", "empty", "garbage", "500", "404", "html", "no choices", "a list", "long"],
)
def test_any_other_answer_is_a_problem_with_what_was_said(answer: Answer, problem: str) -> None:
    answered = ask(lambda _: answer)

    assert (answered.ok, answered.problem) == (False, problem)


def test_a_server_that_hangs_up_has_not_answered() -> None:
    answer = ask(lambda _: None)

    assert (answer.ok, answer.problem.startswith("no answer: ")) == (False, True)


def test_no_server_has_not_answered(nobody: Session) -> None:
    answer = openai.ask(nobody, "chat", QUESTION)

    assert (answer.ok, answer.problem.startswith("no answer: ")) == (False, True)
    assert "refused" in answer.problem


@pytest.mark.parametrize(
    ("answer", "healthy"), [(Answer(200), True), (Answer(503), False), (Answer(404), False), (None, False)], ids=str
)
def test_health_is_200_and_nothing_else(*, answer: Answer | None, healthy: bool) -> None:
    with server(lambda asked: answer if asked.path == "/health" else Answer(200)) as asking:
        assert openai.healthy(asking) is healthy


def test_no_server_is_not_healthy_and_has_no_metrics(nobody: Session) -> None:
    assert (openai.healthy(nobody), openai.metrics(nobody)) == (False, None)


@pytest.mark.parametrize(
    ("answer", "text"),
    [(Answer(200, b"vllm:x 1\n"), "vllm:x 1\n"), (Answer(404, b"no"), None), (None, None)],
    ids=str,
)
def test_metrics_are_the_text_of_the_page(answer: Answer | None, text: str | None) -> None:
    with server(lambda asked: answer if asked.path == "/metrics" else Answer(500)) as asking:
        assert openai.metrics(asking) == text
