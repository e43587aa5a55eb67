"""Answers to prompts, by the mode in STAND_IN_ANSWERS:

true        the correct answer if known, else fluent English; tool calls, JSON and reasoning if requested
nonsense    fluent English without relation to the question
bangs       `!!!!`, as from logits that are NaN
noise       unreadable characters, as from damaged weights
empty       no content, and finish_reason stop
wrong_name  true, but under another model name
raw_tools   true, but a tool call is raw text in the content
think_leak  true, but <think> is in the content
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from stand_in import prose
from stand_in.knobs import Knobs
from stand_in.questions import known
from stand_in.schema import Words, choose_tool, instance

THOUGHT = "The question is clear. I recall what I know about it, and then I say it in a few words."


@dataclass(frozen=True)
class Ask:
    """The parts of a request that determine the answer."""

    prompt: str
    question: str
    max_tokens: int | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)
    tool_choice: Any = "auto"
    tool_said: str | None = None
    schema: Any = None
    thinking: bool = False
    ignore_eos: bool = False


@dataclass(frozen=True)
class Answer:
    """Tokens of reasoning and of content, or a tool call as (name, arguments)."""

    content: list[str]
    finish: str = "stop"
    reasoning: list[str] = field(default_factory=list)
    call: tuple[str, str] | None = None
    logprob: float = -0.35

    @property
    def count(self) -> int:
        """Total number of tokens."""
        called = len(prose.pieces(self.call[1])) + 1 if self.call else 0
        return len(self.reasoning) + len(self.content) + called


def answer(ask: Ask, knobs: Knobs, room: int) -> Answer:
    """Return the answer to `ask`, of at most `room` tokens."""
    most = min(ask.max_tokens or room, room)
    length = most if ask.max_tokens or ask.ignore_eos else min(room, max(2, round(knobs.stream_s * knobs.tok_s)))
    match knobs.answers:
        case "nonsense":
            return Answer(prose.fluent(f"another {ask.question}", length), "length" if ask.max_tokens else "stop")
        case "bangs":
            return Answer(prose.bangs(length), "length", logprob=-9.0)
        case "noise":
            return Answer(prose.noise(ask.question, length), "length", logprob=-9.0)
        case "empty":
            return Answer([])
        case _:
            return _true(ask, knobs, most, length)


def _true(ask: Ask, knobs: Knobs, most: int, length: int) -> Answer:
    function = choose_tool(ask.tools, ask.tool_choice, ask.question) if ask.tool_said is None else None
    thought = prose.pieces(THOUGHT) if ask.thinking else []
    if function:
        return _cut(_call(ask, knobs, function, thought), most)
    said = _text(ask)
    if ask.ignore_eos or said is None:
        begun = prose.pieces(f"{said} ") if said else []
        content = begun + prose.fluent(ask.question, max(1, length - len(thought) - len(begun)))
        ended = "length" if ask.max_tokens or ask.ignore_eos else "stop"
        return _cut(_thought(Answer(content, ended), knobs, thought), most)
    return _cut(_thought(Answer(prose.pieces(said)), knobs, thought), most)


def _text(ask: Ask) -> str | None:
    """Return the known answer, as JSON if there is a schema."""
    found = f"The tool says: {ask.tool_said}" if ask.tool_said is not None else known(ask.prompt)
    if ask.schema is None:
        return found
    return json.dumps(instance(ask.schema, Words(ask.question, _bare(found))), ensure_ascii=False)


def _bare(found: str | None) -> str | None:
    """Return the end of a sentence: Paris of `The capital of France is Paris.`"""
    return found.rpartition(" is ")[2].rstrip(".") if found else None


def _thought(made: Answer, knobs: Knobs, thought: list[str]) -> Answer:
    if knobs.answers != "think_leak":
        return Answer(made.content, made.finish, thought)
    leaked = prose.pieces(f"<think>\n{THOUGHT}\n</think>\n\n")
    return Answer([*leaked, *made.content], made.finish)


def _call(ask: Ask, knobs: Knobs, function: dict[str, Any], thought: list[str]) -> Answer:
    name = str(function.get("name", ""))
    arguments = instance(function.get("parameters") or {"type": "object"}, Words(ask.question))
    if knobs.answers == "raw_tools":
        text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        return Answer(prose.pieces(f"<tool_call>\n{text}\n</tool_call>"))
    return Answer([], "tool_calls", thought, (name, json.dumps(arguments, ensure_ascii=False)))


def _cut(made: Answer, most: int) -> Answer:
    """Truncate an answer to `most` tokens. A tool call that does not fit is removed."""
    if made.count <= most:
        return made
    reasoning = made.reasoning[:most]
    return Answer(made.content[: most - len(reasoning)], "length", reasoning, logprob=made.logprob)
