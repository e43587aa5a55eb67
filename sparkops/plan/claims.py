"""The checks of the smoke suite for streams, tools, JSON, thoughts and speed. Pure, as plan/checks.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from sparkops.config.smoke import StreamingCheck
from sparkops.facts import openai
from sparkops.facts.openai import Said, Streamed, shown
from sparkops.plan import asking
from sparkops.plan.asking import Round
from sparkops.plan.checks import Steps, one
from sparkops.plan.smoke import Finding

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


def streaming(this: Round) -> Steps:
    """An answer comes in pieces over time, with an end and a count."""
    tuning = this.smoke.streaming
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    reply = yield from one(asking.chat(this, tuning.ask, tuning.max_tokens, **streamed))
    return judge_stream(openai.stream(reply), tuning)


def judge_stream(said: Streamed, tuning: StreamingCheck) -> Finding:
    """Whether the stream was whole and came as it was made."""
    if not said.done:
        return Finding("the stream was cut", "[DONE] at its end", said.problem or f"an end after {shown(said.text)}")
    if len(said.arrivals) < tuning.chunks:
        return Finding("the stream has too few pieces", f"at least {tuning.chunks}", f"{len(said.arrivals)}")
    if said.tokens < 1:
        return Finding("the stream does not say how many tokens it used", "usage in the last piece", "none")
    late = next(_late(said.arrivals, tuning), None)
    return late or Finding(note=f"{len(said.arrivals)} pieces, the first after {said.arrivals[0]:.2f} s")


def _late(arrivals: tuple[float, ...], tuning: StreamingCheck) -> Iterator[Finding]:
    """What is wrong with the times at which the pieces came."""
    first_s, last_s = arrivals[0], arrivals[-1]
    gap_s = max((late - early for early, late in pairwise(arrivals)), default=0.0)
    if last_s > BURST_S and last_s - first_s < BURST_SHARE * last_s:
        got = f"{len(arrivals)} pieces within {last_s - first_s:.2f} s after {first_s:.2f} s"
        yield Finding("something holds the stream back until it is whole", "pieces over time", got)
    if first_s > tuning.first_s:
        yield Finding("the first piece comes late", f"it within {tuning.first_s:g} s", f"{first_s:.1f} s")
    if gap_s >= tuning.gap_s:
        yield Finding("the stream stops in between", f"no gap of {tuning.gap_s:g} s", f"{gap_s:.1f} s")


def tools(this: Round) -> Steps:
    """A question that wants a tool is answered with a call of it, not with the model's raw tags."""
    ask = f"What is the weather in {CITY} now? Use the tool."
    more = {"tools": [TOOL], "tool_choice": "auto"}
    return judge_tool(
        openai.chat((yield from one(asking.chat(this, ask, this.smoke.tools.max_tokens, **more)))),
        str(this.recipe.serve.args.get("tool-call-parser", "(none)")),
    )


def judge_tool(said: Said, parser: str) -> Finding:
    """Whether the answer is the call that was wanted."""
    name = TOOL["function"]["name"]
    if RAW_TAGS.search(said.text):
        problem = f"the tool call came as text: tool-call-parser {parser} does not fit the model"
        return Finding(problem, "it in tool_calls", shown(said.text))
    if not said.calls:
        return Finding("the model called no tool", f"a call of {name}", shown(said.text or said.reasoning))
    if said.finish != "tool_calls":
        return Finding("clients will not see the tool call", "finish_reason tool_calls", repr(said.finish))
    call = said.calls[0]
    try:
        city = json.loads(call.arguments)["city"]
    except (ValueError, KeyError, TypeError):
        return Finding("the arguments of the tool call are broken", '{"city": ...}', shown(call.arguments))
    if call.name != name or not asking.holds(CITY, str(city)):
        return Finding("the tool call is wrong", f"{name}({CITY})", f"{call.name}({city})")
    return Finding(note=f"{call.name}({city})")


def structured(this: Round) -> Steps:
    """An answer that is held to a schema fits it."""
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": SCHEMA}}
    request = asking.chat(this, DESCRIBE, this.smoke.structured.max_tokens, response_format=form)
    return judge_structured(openai.chat((yield from one(request))).text)


def judge_structured(text: str) -> Finding:
    """Whether the text is JSON of the schema."""
    try:
        made = json.loads(text)
    except ValueError:
        return Finding("response_format json_schema is not obeyed", "JSON", shown(text))
    wrong = not isinstance(made, dict) or {key: type(value) for key, value in made.items()} != TYPES
    if wrong:
        return Finding("the JSON does not fit its schema", "name, country: text, rivers: a whole number", shown(text))
    return Finding(note="JSON of the schema")


def reasoning(this: Round) -> Steps:
    """Thoughts come in their own field; where thinking can be switched off, there are none."""
    request = asking.chat(this, THINK, this.smoke.reasoning.max_tokens, **this.thinking)
    parser = str(this.recipe.serve.args.get("reasoning-parser", "(none)"))
    found = judge_thoughts(openai.chat((yield from one(request))), parser)
    if found.problem or not this.switches_off:
        return found
    quiet = openai.chat((yield from one(asking.chat(this, THINK, 256))))
    return judge_quiet(quiet, found.note)


def judge_thoughts(said: Said, parser: str) -> Finding:
    """Whether thoughts and answer are apart. Thoughts that used up all tokens leave no answer, and that is no fault."""
    if THINK_TAGS.search(said.text):
        problem = f"thoughts leak into the answer: reasoning-parser {parser} does not fit the model"
        return Finding(problem, "no think tag in content", shown(said.text))
    if not said.reasoning:
        return Finding("the thoughts are missing", "a reasoning field that is not empty", f"content {shown(said.text)}")
    if not said.text.strip() and said.finish != "length":
        return Finding("the model thinks and says nothing", "content after the thoughts", shown(said.reasoning))
    return Finding(note=f"{len(said.reasoning)} characters of thoughts, {len(said.text)} of answer")


def judge_quiet(said: Said, note: str) -> Finding:
    """Whether an answer without thinking is one."""
    if said.reasoning or THINK_TAGS.search(said.text):
        return Finding("thinking cannot be switched off", "no reasoning", shown(said.reasoning or said.text))
    if not said.text.strip():
        return Finding("without thinking the model says nothing", "content", f"finish_reason {said.finish!r}")
    return Finding(note=note)


def speed(this: Round) -> Steps:
    """One stream decodes at least as fast as a share of what somebody measured."""
    tuning = this.smoke.speed
    more = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
    request = asking.chat(this, this.smoke.text.ask, tuning.max_tokens, **more)
    said = openai.stream((yield from one(request)))
    expected = this.recipe.expected.tok_s if this.recipe.expected else None
    return judge_speed(said, expected or 0.0, tuning.floor)


def judge_speed(said: Streamed, expected: float, floor: float) -> Finding:
    """Whether the stream was fast enough; the time to its first piece is not counted."""
    if not said.done or said.tokens < 2 or len(said.arrivals) < 2:
        return Finding("the speed cannot be measured", "a whole stream", said.problem or f"{said.tokens} tokens")
    took_s = said.arrivals[-1] - said.arrivals[0]
    tok_s = (said.tokens - 1) / took_s if took_s > 0 else float("inf")
    share = tok_s / expected if expected else 1.0
    if share < floor:
        wanted = f"at least {floor * expected:.1f} tok/s, {floor:.0%} of the recipe's {expected:g}"
        return Finding("the engine is too slow, as with a fallback kernel", wanted, f"{tok_s:.1f} tok/s")
    slow = ", which is slow" if share < WARN_BELOW else ""
    return Finding(note=f"{tok_s:.1f} tok/s, {share:.0%} of expected{slow}")
