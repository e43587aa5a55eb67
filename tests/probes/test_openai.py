"""The one question and the looks at /health and /metrics."""

from __future__ import annotations

import pytest

from sparkops.config.smoke import Question
from sparkops.probes import openai
from tests.probes.server import Player, free_port, to, whole

PARIS = Question(ask="Capital of France?", expect="Paris", extra={"top_k": 1})


def chat(text: str | None) -> bytes:
    return whole({"choices": [{"message": {"content": text}}], "usage": {"completion_tokens": 3}})


@pytest.mark.parametrize(
    ("reply", "ok", "problem"),
    [
        (chat("It is PARIS. "), True, ""),
        (chat("Rome"), False, "asked 'Capital of France?', expected 'Paris' in the answer, got 'Rome'"),
        (chat(None), False, "asked 'Capital of France?', expected 'Paris' in the answer, got ''"),
        (whole("engine dead", 500), False, "HTTP 500: engine dead"),
        (whole("<html>"), False, "not an OpenAI answer: <html>"),
        (b"", False, "no answer: "),
    ],
)
def test_one_question_is_judged(reply: bytes, ok: bool, problem: str) -> None:
    with Player(lambda connection, _: connection.sendall(reply)).up() as player, to(player.port)() as asking:
        answer = openai.ask(asking, "chat", PARIS)

    assert (answer.ok, answer.problem[: len(problem) or None]) == (ok, problem)
    assert '"top_k": 1' in player.asked[0]


def test_health_and_metrics_of_a_server_and_of_none() -> None:
    with Player(lambda connection, _: connection.sendall(whole("up 1"))).up() as player, to(player.port)() as asking:
        assert (openai.healthy(asking), openai.metrics(asking)) == (True, "up 1")
    with to(free_port())() as asking:
        assert (openai.healthy(asking), openai.metrics(asking)) == (False, None)
