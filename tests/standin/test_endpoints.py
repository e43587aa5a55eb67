"""The endpoints answer as vLLM's do."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkops.engines import metrics
from tests.places import ROOT
from tests.standin.program import Program

CAPTURED = ROOT / "tests" / "captured" / "vllm-0.32.0-cpu-metrics.txt"
FRANCE = "What is the capital of France?"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["fahrenheit", "celsius"]}},
            "required": ["city", "unit"],
        },
    },
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Program]:
    with Program("--max-model-len=1024", RELEASE_NAME="blue") as program:
        yield program.serves()


def events(engine: Program, **more: Any) -> list[Any]:
    """The events of a stream; the last is [DONE]."""
    reply = engine.post(engine.body(more.pop("ask", FRANCE), stream=True, **more))
    assert reply.headers["content-type"].startswith("text/event-stream")
    payloads = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
    assert payloads.pop() == "[DONE]"
    return [json.loads(payload) for payload in payloads]


def test_health_version_and_models(engine: Program) -> None:
    health, version, models = engine.get("/health"), engine.get("/version"), engine.get("/v1/models")
    assert (health.status_code, health.text) == (200, "")
    assert version.json() == {"version": "0.32.0", "stand_in": "blue"}
    (card,) = models.json()["data"]
    assert (card["id"], card["max_model_len"]) == ("stand-in", 1024)
    assert {reply.headers["x-stand-in"] for reply in (health, version, models)} == {"blue"}


def test_it_answers_to_every_name_that_it_is_given() -> None:
    with Program("--served-model-name", "chat", "fast", "org/chat") as program:
        engine = program.serves()
        names = [card["id"] for card in engine.get("/v1/models").json()["data"]]
        answers = {name: engine.post({**engine.body(FRANCE), "model": name}).status_code for name in (*names, "other")}

    assert names == ["chat", "fast", "org/chat"]
    assert answers == {"chat": 200, "fast": 200, "org/chat": 200, "other": 404}


def test_an_answer_has_text_and_usage(engine: Program) -> None:
    answer = engine.post(engine.body(FRANCE)).json()
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {
        "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "prompt_tokens_details": None,
    }  # fmt: skip


def test_a_stream_says_the_same_in_pieces(engine: Program) -> None:
    chunks = events(engine, stream_options={"include_usage": True})
    assert [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]] == [
        "", "The", " capital", " of", " France", " is", " Paris", ".", "",
    ]  # fmt: skip
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 7)
    assert all("usage" not in chunk for chunk in events(engine))


def test_a_text_completion_is_answered_whole_and_in_pieces(engine: Program) -> None:
    body = {"model": "stand-in", "prompt": "Once upon a time", "max_tokens": 8}
    choice = engine.post(body, "/v1/completions").json()["choices"][0]
    assert choice["finish_reason"] == "length"
    streamed = engine.post({**body, "stream": True}, "/v1/completions").text
    pieces = [json.loads(line)["choices"][0]["text"] for line in re.findall(r"data: ({.*})", streamed)]
    assert "".join(pieces) == choice["text"]


def test_prose_has_as_many_tokens_as_wanted_and_the_statistics_of_text(engine: Program) -> None:
    reply = engine.post(engine.body("Write about the sea.", max_tokens=200)).json()
    text = reply["choices"][0]["message"]["content"]
    words = text.split()
    assert reply["usage"]["completion_tokens"] == 200
    assert text.isprintable()
    assert 0.25 < len(zlib.compress(text.encode())) / len(text.encode()) < 0.9
    threes = [tuple(words[at : at + 3]) for at in range(len(words) - 2)]
    assert len(set(threes)) / len(threes) > 0.6
    assert engine.ask("Write about the sea.", max_tokens=200)["message"]["content"] == text


def test_logprobs_come_when_asked_for(engine: Program) -> None:
    assert engine.ask(FRANCE)["logprobs"] is None
    tokens = engine.ask(FRANCE, logprobs=True, top_logprobs=2)["logprobs"]["content"]
    assert [token["token"] for token in tokens][:3] == ["The", " capital", " of"]
    assert all(-2.5 < token["logprob"] < 0 for token in tokens)
    assert all(token["top_logprobs"][0]["token"] == token["token"] for token in tokens)
    assert {len(token["top_logprobs"]) for token in tokens} == {2}


def test_a_tool_is_called_when_the_question_is_about_it(engine: Program) -> None:
    choice = engine.ask("What is the weather in Budapest, in celsius?", tools=[WEATHER])
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Budapest", "unit": "celsius"}
    assert engine.ask(FRANCE, tools=[WEATHER])["finish_reason"] == "stop"


def test_a_tool_call_is_streamed_in_pieces_and_its_result_answered(engine: Program) -> None:
    chunks = events(engine, ask="What is the weather in Budapest?", tools=[WEATHER])
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert json.loads("".join(call["function"]["arguments"] for call in calls))["city"] == "Budapest"
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    messages = [{"role": "user", "content": "Weather?"}, {"role": "tool", "tool_call_id": "1", "content": "rain"}]
    answer = engine.post({"model": "stand-in", "messages": messages, "tools": [WEATHER]}).json()
    assert answer["choices"][0]["message"]["content"] == "The tool says: rain"


def test_thoughts_are_apart_from_the_answer(engine: Program) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    message = engine.ask("What is 17*23?", **thinking)["message"]
    assert message["content"] == "391"
    assert message["reasoning_content"].startswith("The question is clear")
    assert engine.ask("What is 17*23?")["message"]["reasoning_content"] is None
    deltas = [chunk["choices"][0]["delta"] for chunk in events(engine, ask="What is 17*23?", **thinking)]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == message["reasoning_content"]


def test_an_answer_fits_the_schema_that_it_is_held_to(engine: Program) -> None:
    properties = {"city": {"type": "string"}, "n": {"type": "integer"}, "all": {"type": "array", "minItems": 2}}
    schema = {"type": "object", "properties": properties, "required": ["city", "n", "all"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    message = engine.ask("What is the capital of Hungary? Give 7 too.", response_format=form)["message"]
    answer = json.loads(message["content"])
    assert (answer["city"], answer["n"], len(answer["all"])) == ("Budapest", 7, 2)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "x", "messages": [{"role": "user", "content": "a"}]}, 404, "`x` does not exist"),
        ({"messages": [{"role": "user", "content": "a " * 1100}]}, 400, "maximum context length"),
        ({"messages": [{"content": "a"}], "max_tokens": 1020}, 400, "is too large: 1020"),
        ({"messages": [{"content": "a"}], "max_tokens": 0}, 400, "at least 1"),
        ({"messages": []}, 400, "Field required"),
        ([], 400, "valid dictionary"),
    ],
)
def test_a_refusal_has_the_shape_of_openais(engine: Program, body: Any, status: int, words: str) -> None:
    reply = engine.post(body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, status)
    assert words in error["message"]
    assert error["type"]


def test_what_is_not_there_is_404_and_what_cannot_be_done_to_it_405(engine: Program) -> None:
    assert engine.get("/v1/nothing").json()["error"]["code"] == 404
    assert engine.post({}, "/health").json()["error"]["code"] == 405


def test_the_key_is_wanted_under_v1_alone() -> None:
    with Program(key="canary") as engine:
        engine.serves()
        assert engine.get("/health").status_code == 200
        assert engine.get("/v1/models").status_code == 401
        assert engine.get("/v1/models", headers={"Authorization": "Bearer other"}).status_code == 401
        assert engine.get("/v1/models", headers={"Authorization": "Bearer canary"}).status_code == 200
    assert "canary" not in engine.log


def families(text: str) -> dict[str, Any]:
    """Kind, help and the labels of all samples, by family."""
    return {
        family.name: (
            family.type,
            family.documentation,
            {(one.name, *sorted(one.labels.items())) for one in family.samples},
        )
        for family in text_string_to_metric_families(text)
        if family.name != "python_info"
    }


def test_the_metrics_are_those_of_the_real_engine() -> None:
    with Program("--max-model-len=1024") as engine:
        engine.serves().ask(FRANCE)
        text = engine.get("/metrics").text.replace('model_name="stand-in"', 'model_name="tiny"')
    assert families(text) == families(CAPTURED.read_text())


def test_the_metrics_move(engine: Program) -> None:
    before = metrics.parse(engine.get("/metrics").text)
    first = engine.metric("vllm:e2e_request_latency_seconds_count")
    engine.ask(FRANCE)
    after = metrics.parse(engine.get("/metrics").text)
    assert (after.generated - before.generated, after.running, after.waiting) == (7, 0, 0)
    assert engine.metric("vllm:e2e_request_latency_seconds_count") == first + 1
    assert engine.metric("vllm:e2e_request_latency_seconds_sum") > 0


def test_a_batch_that_is_full_makes_requests_wait() -> None:
    with Program("--max-num-seqs=1", TTFT_S="1") as engine, ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(engine.serves().ask, FRANCE) for _ in range(2)]
        while engine.metric("vllm:num_requests_waiting") != 1:
            assert not all(future.done() for future in futures)
        assert engine.metric("vllm:num_requests_running") == 1
        assert [future.result()["finish_reason"] for future in futures] == ["stop", "stop"]
