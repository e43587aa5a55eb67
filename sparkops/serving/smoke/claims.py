"""The checks of the smoke suite for streams, tools, JSON, thoughts and speed. Pure, as serving/smoke/checks.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from sparkops import foreign
from sparkops.config.smoke import StreamingCheck
from sparkops.exchange import Request
from sparkops.serving.smoke import openai, prompts
from sparkops.serving.smoke.checks import Steps, one
from sparkops.serving.smoke.openai import ChatReply, Streamed, shown
from sparkops.serving.smoke.prompts import Round
from sparkops.serving.smoke.results import CheckFinding

RAW_TAGS = re.compile(r"</?tool_call>|<function=|<\|?tool|\[TOOL_CALLS\]|<\|python_tag\|>|to=functions|<invoke ")
THINK_TAGS = re.compile(r"</?think(ing)?>|<\|channel\|>|\[/?THINK\]")
BURST_S = 2.0  # a first step on two busy cores took 1.2 s, and the rest of a tiny model's answer no time
BURST_SHARE = 0.1
WARN_BELOW = 0.8

CITY = "Paris"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city now",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "country": {"type": "string"}, "rivers": {"type": "integer"}},
    "required": ["name", "country", "rivers"],
    "additionalProperties": False,
}
TYPES = {"name": str, "country": str, "rivers": int}
DESCRIBE = "Describe Budapest as JSON with the keys name, country and rivers (how many rivers flow through it)."
THINK = "What is 12*17? Think step by step."


def streaming(run: Round) -> Steps:
    """Check that an answer comes in pieces over time, with an end and a count."""
    tuning = run.smoke.streaming
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    reply = yield from one(prompts.chat(run, tuning.prompt, tuning.max_tokens, **streamed))
    return judge_stream(openai.stream(reply), tuning)


def judge_stream(stream: Streamed, tuning: StreamingCheck) -> CheckFinding:
    """Judge whether the stream was complete and not held back."""
    if not stream.complete:
        return CheckFinding(
            "the stream was cut", "[DONE] at its end", stream.problem or f"an end after {shown(stream.text)}"
        )
    if len(stream.arrivals) < tuning.min_chunks:
        return CheckFinding("the stream has too few pieces", f"at least {tuning.min_chunks}", f"{len(stream.arrivals)}")
    if stream.tokens < 1:
        return CheckFinding("the stream does not report its token usage", "usage in the last piece", "none")
    late = next(_late(stream.arrivals, tuning), None)
    return late or CheckFinding(note=f"{len(stream.arrivals)} pieces, the first after {stream.arrivals[0]:.2f} s")


def _late(arrivals: tuple[float, ...], tuning: StreamingCheck) -> Iterator[CheckFinding]:
    """Yield what is wrong with the times of the pieces."""
    first_s, last_s = arrivals[0], arrivals[-1]
    gap_s = max((late - early for early, late in pairwise(arrivals)), default=0.0)
    if last_s > BURST_S and last_s - first_s < BURST_SHARE * last_s:
        got = f"{len(arrivals)} pieces within {last_s - first_s:.2f} s after {first_s:.2f} s"
        yield CheckFinding("the stream is buffered until it is complete", "pieces over time", got)
    if first_s > tuning.first_s:
        yield CheckFinding("the first piece arrives late", f"it within {tuning.first_s:g} s", f"{first_s:.1f} s")
    if gap_s >= tuning.max_gap_s:
        yield CheckFinding("the stream stops in between", f"no gap of {tuning.max_gap_s:g} s", f"{gap_s:.1f} s")


def tools(run: Round) -> Steps:
    """Check that a question for a tool is answered with a call, not with the model's raw tags."""
    parser = str(run.recipe.serve.args.get("tool-call-parser", "(none)"))
    return judge_tool(openai.chat((yield from one(tool_request(run)))), parser)


def tool_request(run: Round) -> Request:
    """Return a question that needs the tool."""
    prompt = f"What is the weather in {CITY} now? Use the tool."
    return prompts.chat(run, prompt, run.smoke.tools.max_tokens, tools=[TOOL], tool_choice="auto")


def judge_tool(reply: ChatReply, parser: str) -> CheckFinding:
    """Judge whether the answer is the expected call."""
    name = TOOL["function"]["name"]
    if RAW_TAGS.search(reply.text):
        problem = f"the tool call arrived as text: tool-call-parser {parser} does not fit the model"
        return CheckFinding(problem, "it in tool_calls", shown(reply.text))
    if not reply.calls:
        return CheckFinding("the model called no tool", f"a call of {name}", shown(reply.text or reply.reasoning))
    if reply.finish != "tool_calls":
        return CheckFinding("clients will not see the tool call", "finish_reason tool_calls", repr(reply.finish))
    call = reply.calls[0]
    try:
        city = foreign.loads(call.arguments)["city"]
    except (ValueError, KeyError, TypeError):
        return CheckFinding("the arguments of the tool call are broken", '{"city": ...}', shown(call.arguments))
    if call.name != name or not prompts.holds(CITY, str(city)):
        return CheckFinding("the tool call is wrong", f"{name}({CITY})", f"{call.name}({city})")
    return CheckFinding(note=f"{call.name}({city})")


def structured(run: Round) -> Steps:
    """Check that an answer with a schema fits it."""
    return judge_structured(openai.chat((yield from one(structured_request(run)))).text)


def structured_request(run: Round) -> Request:
    """Return a question whose answer must fit a schema."""
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}
    return prompts.chat(run, DESCRIBE, run.smoke.structured.max_tokens, response_format=form)


def judge_structured(text: str) -> CheckFinding:
    """Judge whether the text is JSON of the schema."""
    try:
        parsed = foreign.loads(text)
    except ValueError:
        return CheckFinding("response_format json_schema is ignored", "JSON", shown(text))
    wrong = not isinstance(parsed, dict) or {key: type(value) for key, value in parsed.items()} != TYPES
    if wrong:
        return CheckFinding(
            "the JSON does not fit its schema", "name, country: text, rivers: a whole number", shown(text)
        )
    return CheckFinding(note="JSON of the schema")


def reasoning(run: Round) -> Steps:
    """Check that thoughts have their own field, and that there are none where thinking is switched off."""
    request = prompts.chat(run, THINK, run.smoke.reasoning.max_tokens, **run.thinking)
    parser = str(run.recipe.serve.args.get("reasoning-parser", "(none)"))
    finding = judge_thoughts(openai.chat((yield from one(request))), parser)
    if finding.problem or not run.switches_off:
        return finding
    quiet = openai.chat((yield from one(prompts.chat(run, THINK, 256))))
    return judge_quiet(quiet, finding.note)


def judge_thoughts(reply: ChatReply, parser: str) -> CheckFinding:
    """Judge whether thoughts and answer are separate. No answer is fine where the thoughts took all tokens."""
    if THINK_TAGS.search(reply.text):
        problem = f"reasoning leaks into the answer: reasoning-parser {parser} does not fit the model"
        return CheckFinding(problem, "no think tag in content", shown(reply.text))
    if not reply.reasoning:
        return CheckFinding(
            "the reasoning is missing", "a reasoning field that is not empty", f"content {shown(reply.text)}"
        )
    if not reply.text.strip() and reply.finish != "length":
        return CheckFinding(
            "the model reasons but does not answer", "content after the reasoning", shown(reply.reasoning)
        )
    return CheckFinding(note=f"reasoning {len(reply.reasoning)} chars, answer {len(reply.text)}")


def judge_quiet(reply: ChatReply, note: str) -> CheckFinding:
    """Judge an answer without thinking."""
    if reply.reasoning or THINK_TAGS.search(reply.text):
        return CheckFinding("thinking cannot be switched off", "no reasoning", shown(reply.reasoning or reply.text))
    if not reply.text.strip():
        return CheckFinding("without thinking the model does not answer", "content", f"finish_reason {reply.finish!r}")
    return CheckFinding(note=note)


def speed(run: Round) -> Steps:
    """Check that one stream decodes at least at a share of the measured speed."""
    tuning = run.smoke.speed
    request = prompts.chat(run, run.smoke.text.prompt, tuning.max_tokens, **STREAMED)
    stream = openai.stream((yield from one(request)))
    expected = run.recipe.expected.tok_s if run.recipe.expected else None
    return judge_speed(stream, expected or 0.0, tuning.min_share)


STREAMED = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
"""Keys of a request whose speed is measured: all of its tokens, as they come."""


def stream_request(run: Round, prompt: str, tokens: int) -> Request:
    """Return a request for exactly so many tokens of prose, without room for thoughts."""
    request = prompts.chat(run, prompt, tokens, **STREAMED)
    return replace(request, body={**(request.body or {}), "max_tokens": tokens})


def decode_tok_s(stream: Streamed) -> float | None:
    """Return the tokens per second of a stream after its first piece; None of one that is not whole."""
    if not stream.complete or stream.tokens < 2 or len(stream.arrivals) < 2:
        return None
    took_s = stream.arrivals[-1] - stream.arrivals[0]
    return (stream.tokens - 1) / took_s if took_s > 0 else float("inf")


def judge_speed(stream: Streamed, expected: float, floor: float) -> CheckFinding:
    """Judge the speed of the stream, without the time to its first piece."""
    tok_s = decode_tok_s(stream)
    if tok_s is None:
        return CheckFinding(
            "the speed cannot be measured", "a whole stream", stream.problem or f"{stream.tokens} tokens"
        )
    share = tok_s / expected if expected else 1.0
    if share < floor:
        expectation = f"at least {floor * expected:.1f} tok/s, {floor:.0%} of the recipe's {expected:g}"
        return CheckFinding("the engine is too slow, as with a fallback kernel", expectation, f"{tok_s:.1f} tok/s")
    slow = ", which is slow" if share < WARN_BELOW else ""
    return CheckFinding(note=f"{tok_s:.1f} tok/s, {share:.0%} of expected{slow}")
