"""The checks as pure generators: the test plays the server by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sparkops.config.smoke import SmokeQuestion
from sparkops.exchange import Reply, Request
from sparkops.serving.smoke import checks
from sparkops.serving.smoke import prompts as asking
from sparkops.serving.smoke.checks import Steps
from sparkops.serving.smoke.openai import Unusable
from sparkops.serving.smoke.prompts import Round
from sparkops.serving.smoke.results import CheckFinding
from tests.examples import recipe

Answer = Callable[[Request], Reply]
QUESTIONS = [{"prompt": "2+2?", "expect": "4"}, {"prompt": "Capital of France?", "expect": "Paris"}]
RIGHT = {"2+2?": "4", "Capital of France?": "It is Paris."}


def play(steps: Steps, answer: Answer) -> CheckFinding:
    """Run a check against a server that is a function."""
    replies: tuple[Reply, ...] | None = None
    while True:
        try:
            requests = next(steps) if replies is None else steps.send(replies)
        except StopIteration as end:
            finding: CheckFinding = end.value
            return finding
        replies = tuple(map(answer, requests))


def says(value: Any, status: int = 200) -> Reply:
    text = value if isinstance(value, str) else json.dumps(value)
    return Reply(status, ((0.1, text),), took_s=0.5)


def chat(text: str, **message: Any) -> Reply:
    choice = {"message": {"content": text, **message}, "finish_reason": "stop"}
    return says({"choices": [choice], "usage": {"completion_tokens": 3, "prompt_tokens": 7}})


def always(reply: Reply) -> Answer:
    return lambda _: reply


def in_turn(replies: Iterable[Reply]) -> Answer:
    remaining = iter(replies)
    return lambda _: next(remaining)


def question_of(request: Request) -> str:
    assert request.body is not None
    return str(request.body["messages"][0]["content"])


def knows(answers: dict[str, str]) -> Answer:
    """A server that answers the question that a prompt ends with."""
    return lambda request: chat(next(answer for ask, answer in answers.items() if question_of(request).endswith(ask)))


def round_of(**changes: Any) -> Round:
    smoke = {"questions": {"prompts": QUESTIONS, "max_wrong": 0}, **changes.pop("smoke", {})}
    return Round(recipe(probe={"smoke": smoke}, **changes))


def test_health_says_which_status_came() -> None:
    assert str(play(checks.health(round_of()), always(says("", 503)))) == (
        "/health reports no success; expected HTTP 200; got HTTP 503"
    )
    assert play(checks.health(round_of()), always(Reply(200))).problem == ""


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(0, problem="no answer within 10 s"), "no answer within 10 s"),
        (Reply(200, ((0.1, "{"),), problem="the connection broke: reset"), "the connection broke: reset"),
        (says("oops", 500), "HTTP 500: 'oops'"),
        (says("<html>"), "not an OpenAI answer: '<html>'"),
        (says({"choices": []}), "not an OpenAI answer: '{\"choices\": []}'"),
    ],
)
def test_what_is_no_answer_says_why(reply: Reply, why: str) -> None:
    with pytest.raises(Unusable) as caught:
        play(checks.text(round_of()), always(reply))

    assert (str(caught.value), caught.value.silent) == (why, bool(reply.problem))


def test_the_version_may_be_held_to_a_beginning() -> None:
    run = round_of(smoke={"version": {"expect": "0.32"}})

    assert play(checks.version(round_of()), always(says({"version": "0.19.1"}))).note == "0.19.1"
    assert play(checks.version(run), always(says({"version": "0.32.0+cpu"}))).problem == ""
    assert str(play(checks.version(run), always(says({"version": "0.19.1"})))) == (
        "the engine's version differs from the recipe's; expected version 0.32; got \"{'version': '0.19.1'}\""
    )


@pytest.mark.parametrize(
    ("cards", "finding"),
    [
        ([{"id": "chat", "max_model_len": 8192}], "chat, 8192 tokens"),
        ([{"id": "lora"}, {"id": "chat", "max_model_len": 16384}], "chat, 16384 tokens"),
        ([{"id": "chat"}], "chat, 8192 tokens"),
        (
            [{"id": "chat", "max_model_len": 4096}],
            "the window is smaller than the recipe's; expected 8192 tokens; got 4096",
        ),
        ([{"id": "m"}], "the model is not served under its name; expected the name chat; got m"),
        ([], "the model is not served under its name; expected the name chat; got no model"),
    ],
)
def test_the_served_name_and_window(cards: list[dict[str, Any]], finding: str) -> None:
    of = round_of(serve={"args": {"max-model-len": 8192}})

    assert str(play(checks.models(of), always(says({"data": cards})))) == finding


def test_the_warm_up_sends_the_first_question_and_has_minutes() -> None:
    sent = []

    def server(request: Request) -> Reply:
        sent.append(request)
        return chat("anything")

    assert play(checks.warm_up(round_of(smoke={"warm_up": {"timeout_s": 120}})), server).problem == ""
    assert [(question_of(request), request.timeout_s) for request in sent] == [("2+2?", 120.0)]


def test_as_many_wrong_answers_pass_as_the_recipe_allows() -> None:
    of = round_of(smoke={"questions": {"prompts": QUESTIONS, "max_wrong": 1}})

    assert str(play(checks.questions(of), knows({**RIGHT, "2+2?": "5"}))) == "1 of 2 right"


def test_a_wrong_answer_is_shown_with_its_question() -> None:
    finding = play(checks.questions(round_of()), knows({**RIGHT, "2+2?": "5"}))

    assert str(finding) == "only 1 of 2 answers are right; expected at least 2; got '2+2?' answered with '5', not '4'"


@pytest.mark.parametrize(
    ("expect", "text", "right"),
    [
        ("Paris", "**PARIS**.", True),
        ("Paris", "Parisian", False),
        ("391", "17*23 = 391.", True),
        ("391", "1391", False),
        ('{"a":1}', '```json\n{ "a" : 1 }\n```', True),
        ('{"a":1}', '{"a":2}', False),
        ("New Delhi", "new\n delhi", True),
        ("北京", "中国的首都是北京。", True),
        ("İstanbul", "istanbul", False),
        ("é", "cafe\u0301", False),
        ("caf\u00e9", "CAFE\u0301", True),
    ],
)
def test_an_answer_holds_what_was_expected(expect: str, text: str, right: bool) -> None:
    assert asking.holds(expect, text) is right


def test_repeat_compares_with_the_first_answers() -> None:
    of = round_of(smoke={"repeat": {"max_differences": 0}})
    play(checks.questions(of), knows(RIGHT))

    assert play(checks.repeat(of), knows(RIGHT)).note == "2 of 2 the same"
    assert str(play(checks.repeat(of), knows({**RIGHT, "2+2?": "four"}))) == (
        "answers differ at temperature 0; "
        "expected at most 0 to differ; got 1: '2+2?' answered with '4', then with 'four'"
    )
    assert play(checks.repeat(round_of()), knows({**RIGHT, "2+2?": "four"})).problem == ""


def test_the_needle_lies_in_a_prompt_that_no_cache_knows() -> None:
    prompts = []

    def server(request: Request) -> Reply:
        prompts.append(question_of(request))
        return chat("Marigold." if "marigold" in prompts[-1] else "I do not know.")

    rounds = [Round(recipe(), number) for number in (1, 2)]
    first, second = (play(checks.needle(run), server) for run in rounds)

    assert first.note == "found in 7 tokens"
    assert (second.problem, second.expected) == ("a fact in the middle of 7 tokens is not found", "'saltbush'")
    assert all(8192 * 4 < len(prompt) < 8192 * 5 for prompt in prompts)
    assert prompts[0].partition("The secret word is")[0][:60] != prompts[1][:60]
    middle = len(prompts[0].partition("The secret word is")[0]) / len(prompts[0])
    assert 0.45 < middle < 0.55


def test_what_was_right_alone_must_be_right_in_a_batch() -> None:
    of = round_of(smoke={"concurrent": {"words": [0, 0, 50]}})
    sizes = []

    def batch(request: Request) -> Reply:
        sizes.append(len(question_of(request)))
        return chat("!!!" if len(question_of(request)) > 200 else RIGHT[question_of(request)])

    play(checks.questions(of), knows(RIGHT))
    finding = play(checks.concurrent(of), batch)

    assert str(finding) == (
        "one of 3 requests at once, with 50 words before the question, failed; expected '4'; got '!!!'"
    )
    assert sizes[:2] == [4, 18]
    assert 300 < sizes[2] < 500


def test_a_batch_of_questions_that_are_answered_late_ends_the_suite() -> None:
    of = round_of(smoke={"concurrent": {"words": [0, 0], "timeout_s": 7.0}})
    play(checks.questions(of), knows(RIGHT))
    limits = []

    def server(request: Request) -> Reply:
        limits.append(request.timeout_s)
        return Reply(0, problem="no answer within 7 s")

    finding = play(checks.concurrent(of), server)

    assert (finding.got, finding.silent, limits) == ("no answer within 7 s", True, [7.0, 7.0])


def test_a_batch_needs_a_question_that_is_answered_alone() -> None:
    assert play(checks.concurrent(round_of()), always(chat("?"))).problem == (
        "no question was answered correctly alone, so none is sent concurrently"
    )


def test_what_must_be_refused_is_refused() -> None:
    of = Round(recipe(), window=100)
    sent = []

    def server(request: Request) -> Reply:
        sent.append(request)
        return [says("", 404), says("", 400)][len(sent) - 1]

    assert play(checks.negatives(of), server).note == "2 refused"
    assert sent[0].body is not None
    assert sent[0].body["model"] == "chat-unknown"
    assert question_of(sent[1]).count("a ") == 116


@pytest.mark.parametrize(
    ("statuses", "problem"),
    [
        ([200, 400], "a model that does not exist is not refused"),
        ([404, 200], "a prompt that is longer than the window is not refused"),
        ([404, 500], "a prompt that is longer than the window is not refused"),
    ],
)
def test_what_is_not_refused_is_named(statuses: list[int], problem: str) -> None:
    replies = in_turn(says("", status) for status in statuses)

    assert play(checks.negatives(Round(recipe(), window=100)), replies).problem == problem


def counters(generated: int, running: int) -> Reply:
    return says(f"vllm:generation_tokens_total {generated}.0\nvllm:num_requests_running {running}.0\n")


@pytest.mark.parametrize(
    ("alone", "after", "finding"),
    [
        (True, [(15, 0)], "5 tokens generated, 0 running"),
        (True, [(15, 1), (15, 0)], "5 tokens generated, 0 running"),
        (False, [(15, 3)], "5 tokens generated, 3 running"),
        (True, [(15, 1)] * 5, "requests still run after all answers arrived; expected 0 running; got 1"),
        (
            True,
            [(10, 0)] * 5,
            "the engine answers, but its token counter does not grow; expected generation_tokens_total to grow; got 0",
        ),
    ],
)
def test_the_counters_grow_and_come_to_rest(alone: bool, after: list[tuple[int, int]], finding: str) -> None:
    of = Round(recipe(), alone=alone)
    play(checks.look_at_metrics(of), always(counters(10, 0)))

    assert str(play(checks.metrics(of), in_turn(counters(*sample) for sample in after))) == finding


def test_running_requests_have_settle_s_to_end() -> None:
    of = round_of(smoke={"metrics": {"settle_s": 8.0}})
    of.alone = True
    play(checks.look_at_metrics(of), always(counters(10, 0)))
    sent = []

    def server(request: Request) -> Reply:
        sent.append(request)
        return counters(15, 1)

    play(checks.metrics(of), server)

    assert [request.after_s for request in sent] == [0.0, 2.0, 2.0, 2.0, 2.0]


def test_counters_that_are_not_vllms_are_named() -> None:
    of = Round(recipe())
    play(checks.look_at_metrics(of), always(says("nothing", 404)))

    assert play(checks.metrics(of), always(says("up 1\n"))).problem == "/metrics has no metrics of a known engine"
    assert play(checks.metrics(of), always(counters(1, 0))).problem == (
        "/metrics could not be read before the other checks"
    )


@pytest.mark.parametrize(
    ("parser", "tuning", "body", "room"),
    [
        (None, {}, {}, 0),
        ("qwen3", {}, {"chat_template_kwargs": {"enable_thinking": False}}, 0),
        ("deepseek_v3", {}, {"chat_template_kwargs": {"thinking": False}}, 0),
        ("openai_gptoss", {}, {}, 1024),
        ("openai_gptoss", {"extra": {"reasoning_effort": "low"}}, {"reasoning_effort": "low"}, 1024),
        ("qwen3", {"extra": {}, "thinking_tokens": 300}, {}, 300),
    ],
)
def test_thinking_is_switched_off_or_given_room(
    parser: str | None, tuning: dict[str, Any], body: dict[str, Any], room: int
) -> None:
    of = round_of(serve={"args": {"reasoning-parser": parser} if parser else {}}, smoke=tuning)

    sent = asking.question(of, SmokeQuestion(prompt="2+2?", expect="4"))

    assert sent.body == {
        "model": "chat",
        "messages": [{"role": "user", "content": "2+2?"}],
        "max_tokens": 64 + room,
        "temperature": 0,
        **body,
    }


def test_a_small_window_leaves_room_for_the_prompt() -> None:
    sent = asking.chat(Round(recipe(), window=100), "Tell me a story.", 200)

    assert sent.body is not None
    assert sent.body["max_tokens"] == 50
