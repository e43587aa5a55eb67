"""Answers of two stand-in engines compared: what they share, and what a knob makes different."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sparkops.config.recipe import Recipe
from sparkops.serving.comparison import answers, verdict
from sparkops.serving.comparison.answers import MOST_QUESTIONS, MOST_TOKENS, Answers, Baseline
from sparkops.serving.comparison.asking import Asking, of_new
from sparkops.serving.comparison.verdict import Comparison
from tests.examples import recipe
from tests.serving.smoke.server import Engine, Player, to, whole

pytestmark = pytest.mark.local
KNOBS: dict[str, dict[str, object]] = {
    "old": {"TOK_S": 400},
    "equal": {"TOK_S": 400},
    "nonsense": {"TOK_S": 400, "ANSWERS": "nonsense"},
    "raw tools": {"TOK_S": 400, "ANSWERS": "raw_tools"},
    "errors": {"TOK_S": 400, "ERROR_RATE": 1},
}
RUN: Recipe = recipe(serve={"args": {"enable-auto-tool-choice": True, "tool-call-parser": "qwen3_coder"}})
ASKED = answers.questions(RUN)


@pytest.fixture(scope="module")
def engines() -> Iterator[Mapping[str, Engine]]:
    """All engines, started at once."""
    started = {name: Engine(knobs) for name, knobs in KNOBS.items()}
    yield started
    for engine in started.values():
        engine.stop()


@pytest.fixture(scope="module")
def baseline(engines: Mapping[str, Engine]) -> Baseline:
    """The old one's answers, as they reach another node."""
    asked = Baseline(questions=ASKED, old=asking(engines["old"]).answers(ASKED))
    return Baseline.model_validate_json(asked.model_dump_json())


def asking(engine: Engine) -> Asking:
    return Asking("stand-in", RUN, to(engine.ready().port))


def compared(baseline: Baseline, engine: Engine) -> Comparison:
    return verdict.compare(baseline, of_new(asking(engine), baseline))


def timed(line: str) -> bool:
    """Whether it says how long something took, which a busy machine decides."""
    return "tokens/s" in line or "first token" in line


def test_an_equal_engine_differs_in_nothing(engines: Mapping[str, Engine], baseline: Baseline) -> None:
    found = compared(baseline, engines["equal"])

    assert not [line for line in found.beyond if not timed(line)], str(found)
    assert "log-probabilities differ by up to 0.000" in str(found)
    assert baseline.old.window == 32768
    assert len(baseline.old.speeds) == 6


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nonsense", "answers have the first"),
        ("raw tools", "text in place of a tool call"),
        ("errors", "no answer: HTTP 500"),
    ],
)
def test_what_a_knob_makes_different_is_found(
    engines: Mapping[str, Engine], baseline: Baseline, name: str, what: str
) -> None:
    found = compared(baseline, engines[name])

    assert any(what in line for line in found.beyond), str(found)


def test_a_server_that_refuses_log_probabilities_is_asked_without_them() -> None:
    def play(connection: Any, text: str) -> None:
        if "POST /v1/chat" not in text:
            connection.sendall(whole({}, 404))
        elif "logprobs" in text:
            connection.sendall(whole({"error": "logprobs are not supported"}, 400))
        else:
            usage = {"prompt_tokens": 1, "completion_tokens": 1}
            message = {"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}], "usage": usage}
            connection.sendall(whole(message))

    with Player(play).up() as server:
        found: Answers = Asking("other", RUN, to(server.port)).answers(ASKED[:2])

    assert {answer.text for given in found.answers for answer in given} == {"Paris"}
    assert sum("logprobs" in text for text in server.received) == 1
    assert (found.window, found.speeds) == (None, ())


def test_questions_are_bounded_in_number_and_length() -> None:
    extra = {"max_tokens": 5000, "stream": True, "model": "x"}
    own = [{"messages": [{"role": "user", "content": str(number)}], **extra} for number in range(50)]

    found = answers.questions(RUN, own)

    assert len(found) == MOST_QUESTIONS
    assert {question.body["model"] for question in found} == {"chat"}
    assert max(question.body["max_tokens"] for question in found) <= MOST_TOKENS
    assert not any("stream" in question.body for question in found)
    assert json.loads(found[-1].model_dump_json())["body"]["temperature"] == 0
