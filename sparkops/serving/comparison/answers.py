"""Questions and the answers of a release to them, as values that go from one node to another. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sparkops import foreign
from sparkops.config.recipe import Recipe
from sparkops.exchange import Reply
from sparkops.serving.smoke import claims, coverage, openai, prompts
from sparkops.serving.smoke.openai import Unusable
from sparkops.serving.smoke.prompts import Round

MOST_QUESTIONS = 32
MOST_TOKENS = 64
"""Tokens of an answer. Greedy answers of two engines part sooner or later; what comes after that is not compared."""
NEAR = 5
"""Most likely tokens at each place: the one of the other release is among them where the two part."""
ROUNDS = 3
"""How often each question is asked: the answers of one release to one question are its own spread."""
LOGPROBS = {"logprobs": True, "top_logprobs": NEAR}
SPEED_TOKENS = 64
"""Tokens of a stream whose speed is measured."""
TEXT_LETTERS, TOKEN_LETTERS = 4000, 200
"""What is kept of an answer and of a token: all answers must fit the request that brings them to a guard."""
COMPARED = "compared"
"""The kind of an event that holds the result."""
Form = Literal["text", "JSON", "tool call", "broken JSON", "broken tool call"]


class Value(BaseModel):
    """A value of this module. It is read from a file that another node has sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Question(Value):
    """A request of /v1/chat/completions, with a name for people."""

    name: str
    body: dict[str, Any]


class Token(Value):
    """A token of an answer, its log-probability, and those of the likeliest tokens at its place."""

    text: str
    logprob: float
    near: dict[str, float] = {}


class Answer(Value):
    """One answer, or the problem in place of one."""

    text: str = ""
    form: Form = "text"
    tokens: tuple[Token, ...] = ()
    problem: str = ""


class Speed(Value):
    """One stream: tokens per second after the first one, seconds to the first one, and the requests beside it."""

    tok_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    first_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    beside: Annotated[int, Field(ge=0)]


class Answers(Value):
    """What one release has answered: by question in the order of the rounds."""

    release: str
    window: int | None = None
    """Its longest context in tokens, if /v1/models says so."""
    answers: tuple[tuple[Answer, ...], ...] = ()
    speeds: tuple[Speed, ...] = ()


class Baseline(Value):
    """What the guard of the new release needs: the questions, the old one's answers, and what has changed."""

    questions: tuple[Question, ...]
    old: Answers
    changed: str = ""
    """The weights or their precision, in words; empty where they are the same, so that the answers must be too."""


def file_name(intent: str) -> str:
    """Return the name under which a guard keeps the baseline of a deploy, by the id of its intent."""
    return f"answers-{intent}"


def questions(recipe: Recipe, own: Sequence[Mapping[str, Any]] = ()) -> tuple[Question, ...]:
    """Return the questions of the smoke suite, one for prose, those for tools and JSON if it has them, and the owner's.

    Prose comes in any case: it need not be good to be compared.
    """
    run, checks = Round(recipe, alone=False), coverage.of_pass(recipe, 1)
    smoke = recipe.probe.smoke
    bodies = [(item.prompt, prompts.question(run, item).body) for item in smoke.questions.prompts]
    bodies.append((smoke.text.prompt, prompts.chat(run, smoke.text.prompt, MOST_TOKENS).body))
    if "tools" in checks:
        bodies.append(("a tool call", claims.tool_request(run).body))
    if "structured" in checks:
        bodies.append(("JSON of a schema", claims.structured_request(run).body))
    bodies += [(f"question {number}", {"temperature": 0, **body}) for number, body in enumerate(own, 1)]
    return tuple(Question(name=name, body=_bounded(run, body or {})) for name, body in bodies[:MOST_QUESTIONS])


def _bounded(run: Round, body: Mapping[str, Any]) -> dict[str, Any]:
    given = body.get("max_tokens") or body.get("max_completion_tokens") or MOST_TOKENS
    most = min(given, MOST_TOKENS + run.room) if isinstance(given, int) else MOST_TOKENS
    kept = {
        key: value for key, value in body.items() if key not in ("stream", "stream_options", "max_completion_tokens")
    }
    return {**kept, "model": run.recipe.service, "max_tokens": most, **LOGPROBS}


def read(reply: Reply, body: Mapping[str, Any]) -> Answer:
    """Return the answer in a reply to a request of this body."""
    try:
        chat = openai.chat(reply)
        tokens = tuple(_tokens(openai.data(reply)["choices"][0].get("logprobs")))
    except Unusable as error:
        return Answer(problem=foreign.one_line(str(error)))
    if chat.calls:
        form: Form = "tool call" if all(_is_json(call.arguments) for call in chat.calls) else "broken tool call"
        text = "; ".join(f"{call.name}({call.arguments})" for call in chat.calls)
    elif "response_format" in body:
        form, text = "JSON" if _is_json(chat.text) else "broken JSON", chat.text
    else:
        form, text = "text", chat.text or chat.reasoning
    return Answer(text=text[:TEXT_LETTERS], form=form, tokens=tokens)


def _is_json(text: str) -> bool:
    try:
        foreign.loads(text)
    except ValueError:
        return False
    return True


def _tokens(given: Any) -> Iterator[Token]:
    """Yield the tokens of an answer up to the first one without a number."""
    content = given.get("content") if isinstance(given, Mapping) else None
    for item in (content if isinstance(content, list) else [])[:MOST_TOKENS]:
        try:
            text, logprob = _piece(item), float(item["logprob"])
            near = {_piece(other): float(other["logprob"]) for other in (item.get("top_logprobs") or [])[:NEAR]}
        except (KeyError, TypeError, ValueError, AttributeError):
            return
        if not math.isfinite(logprob):
            return
        yield Token(
            text=text, logprob=logprob, near={name: value for name, value in near.items() if math.isfinite(value)}
        )


def _piece(item: Mapping[str, Any]) -> str:
    return str(item["token"])[:TOKEN_LETTERS]
