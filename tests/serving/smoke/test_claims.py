"""Streams, tools, JSON, thoughts and speed: the judgements."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.smoke import StreamingCheck
from sparkops.exchange import Reply, Request
from sparkops.serving.smoke import claims, openai
from sparkops.serving.smoke.openai import ChatReply, Streamed, ToolCall, Unusable
from sparkops.serving.smoke.prompts import Round
from tests.examples import recipe
from tests.serving.smoke.test_checks import chat, in_turn, play

STEADY = tuple(0.5 + number / 10 for number in range(20))
STREAM = Streamed("one, two", STEADY, tokens=20, complete=True, problem="", took_s=2.5)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({}, "20 pieces, the first after 0.50 s"),
        ({"complete": False}, "the stream was cut; expected [DONE] at its end; got an end after 'one, two'"),
        (
            {"complete": False, "problem": "the connection broke: reset"},
            "the stream was cut; expected [DONE] at its end; got the connection broke: reset",
        ),
        ({"arrivals": STEADY[:3]}, "the stream has too few pieces; expected at least 5; got 3"),
        ({"arrivals": ()}, "the stream has too few pieces; expected at least 5; got 0"),
        (
            {"arrivals": (4.0, 4.01, 4.02, 4.03, 4.04)},
            "the stream is buffered until it is complete; expected pieces over time; "
            "got 5 pieces within 0.04 s after 4.00 s",
        ),
        ({"arrivals": (0.2, 0.21, 0.22, 0.23, 0.24)}, "5 pieces, the first after 0.20 s"),
        ({"arrivals": (1.96, 1.97, 1.98, 1.99, 2.0)}, "5 pieces, the first after 1.96 s"),
        (
            {"arrivals": (2.0, 2.01, 2.02, 2.03, 2.04)},
            "the stream is buffered until it is complete; expected pieces over time; "
            "got 5 pieces within 0.04 s after 2.00 s",
        ),
        (
            {"arrivals": tuple(number + 11 for number in range(9))},
            "the first piece arrives late; expected it within 10 s; got 11.0 s",
        ),
        (
            {"arrivals": (1.0, 2.0, 3.0, 4.0, 14.0)},
            "the stream stops in between; expected no gap of 10 s; got 10.0 s",
        ),
        (
            {"tokens": 0},
            "the stream does not report its token usage; expected usage in the last piece; got none",
        ),
    ],
)
def test_a_stream_comes_as_it_is_made(change: dict[str, Any], finding: str) -> None:
    assert str(claims.judge_stream(replace(STREAM, **change), StreamingCheck())) == finding


CALL = ChatReply(finish="tool_calls", calls=(ToolCall("get_weather", '{"city": "Paris"}'),))


@pytest.mark.parametrize(
    ("reply", "finding"),
    [
        (CALL, "get_weather(Paris)"),
        (replace(CALL, calls=(ToolCall("get_weather", '{"city": "Paris, France"}'),)), "get_weather(Paris, France)"),
        (
            ChatReply(text='<tool_call>{"name": "get_weather"}</tool_call>', finish="stop"),
            "the tool call arrived as text: tool-call-parser hermes does not fit the model; expected it in tool_calls; "
            'got \'<tool_call>{"name": "get_weather"}</tool_call>\'',
        ),
        (
            ChatReply(text="<function=get_weather>", finish="stop"),
            "the tool call arrived as text: tool-call-parser hermes does not fit the model; expected it in tool_calls; "
            "got '<function=get_weather>'",
        ),
        (ChatReply(text="It rains."), "the model called no tool; expected a call of get_weather; got 'It rains.'"),
        (
            replace(CALL, finish="stop"),
            "clients will not see the tool call; expected finish_reason tool_calls; got 'stop'",
        ),
        (
            replace(CALL, calls=(ToolCall("get_weather", '{"city": "Par'),)),
            'the arguments of the tool call are broken; expected {"city": ...}; got \'{"city": "Par\'',
        ),
        (
            replace(CALL, calls=(ToolCall("get_weather", '"Paris"'),)),
            'the arguments of the tool call are broken; expected {"city": ...}; got \'"Paris"\'',
        ),
        (
            replace(CALL, calls=(ToolCall("get_weather", '{"city": "London"}'),)),
            "the tool call is wrong; expected get_weather(Paris); got get_weather(London)",
        ),
    ],
)
def test_a_tool_is_called_as_clients_see_it(reply: ChatReply, finding: str) -> None:
    assert str(claims.judge_tool(reply, "hermes")) == finding


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "Budapest", "country": "Hungary", "rivers": 1}', ""),
        ('```json\n{"name": "Budapest"}\n```', "response_format json_schema is ignored"),
        ('{"name": "Budapest", "country": "Hungary"}', "the JSON does not fit its schema"),
        ('{"name": "Budapest", "country": "Hungary", "rivers": "1"}', "the JSON does not fit its schema"),
        ('{"name": "Budapest", "country": "Hungary", "rivers": 1, "x": 2}', "the JSON does not fit its schema"),
        ("[]", "the JSON does not fit its schema"),
    ],
)
def test_json_fits_its_schema(text: str, problem: str) -> None:
    assert claims.judge_structured(text).problem == problem


@pytest.mark.parametrize(
    ("reply", "finding"),
    [
        (ChatReply(text="24", reasoning="3 * 8"), "reasoning 5 chars, answer 2"),
        (ChatReply(reasoning="3 * 8 is", finish="length"), "reasoning 8 chars, answer 0"),
        (
            ChatReply(text="<think>3 * 8</think>24"),
            "reasoning leaks into the answer: reasoning-parser qwen3 does not fit the model; "
            "expected no think tag in content; got '<think>3 * 8</think>24'",
        ),
        (
            ChatReply(text="24"),
            "the reasoning is missing; expected a reasoning field that is not empty; got content '24'",
        ),
        (
            ChatReply(reasoning="24", finish="stop"),
            "the model reasons but does not answer; expected content after the reasoning; got '24'",
        ),
    ],
)
def test_thoughts_have_a_field_of_their_own(reply: ChatReply, finding: str) -> None:
    assert str(claims.judge_thoughts(reply, "qwen3")) == finding


@pytest.mark.parametrize(
    ("quiet", "problem"),
    [
        (chat("204"), ""),
        (chat("204", reasoning="12 * 17"), "thinking cannot be switched off"),
        (chat("204", reasoning_content="12 * 17"), "thinking cannot be switched off"),
        (chat(""), "without thinking the model does not answer"),
    ],
)
def test_thinking_can_be_switched_off(quiet: Reply, problem: str) -> None:
    of = Round(recipe(serve={"args": {"reasoning-parser": "qwen3"}}))

    finding = play(claims.reasoning(of), in_turn([chat("204", reasoning="12 * 17"), quiet]))

    assert finding.problem == problem


def test_a_model_that_always_thinks_is_asked_once() -> None:
    of = Round(recipe(serve={"args": {"reasoning-parser": "openai_gptoss"}}))

    assert play(claims.reasoning(of), in_turn([chat("204", reasoning="12 * 17")])).problem == ""


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({}, "10.0 tok/s, 100% of expected"),
        ({"tokens": 13}, "6.3 tok/s, 63% of expected, which is slow"),
        (
            {"tokens": 10},
            "the engine is too slow, as with a fallback kernel; expected at least 5.0 tok/s, 50% of the recipe's 10; "
            "got 4.7 tok/s",
        ),
        ({"complete": False, "problem": "reset"}, "the speed cannot be measured; expected a whole stream; got reset"),
        ({"arrivals": (1.0,)}, "the speed cannot be measured; expected a whole stream; got 20 tokens"),
        ({"arrivals": (1.0, 2.9)}, "10.0 tok/s, 100% of expected"),
        ({"tokens": 1}, "the speed cannot be measured; expected a whole stream; got 1 tokens"),
        ({"tokens": 2, "arrivals": (1.0, 1.1)}, "10.0 tok/s, 100% of expected"),
    ],
)
def test_the_speed_has_a_floor(change: dict[str, Any], finding: str) -> None:
    assert str(claims.judge_speed(replace(STREAM, **change), 10.0, 0.5)) == finding


def event(delta: dict[str, Any], **more: Any) -> str:
    return f"data: {json.dumps({'choices': [{'delta': delta}], **more})}\n\n"


def test_a_stream_is_read_wherever_its_parts_are_cut() -> None:
    text = (
        event({"role": "assistant", "content": ""})
        + event({"reasoning": "Hm. "})
        + event({"content": "One"})
        + ": a comment\n\n"
        + 'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\ndata: [DONE]\n\n'
    )
    for cut in range(1, len(text) - 1):
        reply = openai.stream(Reply(200, ((1.0, text[:cut]), (2.0, text[cut:])), took_s=2.0))

        assert (reply.text, reply.tokens, reply.complete) == ("Hm. One", 7, True)
        assert set(reply.arrivals) <= {1.0, 2.0}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('data: {"error": {"message": "EngineDead"}}\n\n', "an error in the stream: "),
        ("data: {oops\n\n", "not an OpenAI stream: '{oops'"),
        ('{"choices": []}', "not an OpenAI answer: "),
    ],
)
def test_what_is_no_stream_says_why(text: str, why: str) -> None:
    with pytest.raises(Unusable, match="^" + why):
        openai.stream(Reply(200, ((1.0, text),)))


def test_a_sentence_shows_the_beginning_of_a_text() -> None:
    assert openai.shown("!" * 200) == "'!!!...'"
    assert openai.shown("ab" * 100) == f"'{'ab' * 60}...'"


def test_a_refused_stream_and_a_silent_one_say_why() -> None:
    with pytest.raises(Unusable, match=r"^HTTP 400: 'no'"):
        openai.stream(Reply(400, ((1.0, "no"),)))
    with pytest.raises(Unusable, match=r"^no answer within 5 s"):
        openai.stream(Reply(0, problem="no answer within 5 s"))


def test_the_measured_stream_is_forced_to_its_length() -> None:
    sent: list[Request] = []

    def server(request: Request) -> Reply:
        sent.append(request)
        return Reply(
            200, ((0.1, event({"content": "a"})), (0.2, event({"content": "b"}, usage={"completion_tokens": 2})))
        )

    finding = play(claims.speed(Round(recipe(expected={"tok_s": 10.0, "source": "a test"}))), server)

    assert finding.problem == "the speed cannot be measured"
    assert sent[0].body is not None
    assert {key: sent[0].body[key] for key in ("stream", "ignore_eos", "max_tokens")} == {
        "stream": True,
        "ignore_eos": True,
        "max_tokens": 256,
    }
