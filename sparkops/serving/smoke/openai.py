"""Replies of an OpenAI-compatible server, as values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkops import foreign
from sparkops.exchange import Reply

SHOWN = 120  # characters of an answer that a sentence shows
SHOWN_ERROR = 400  # of what a server says went wrong
DONE = "[DONE]"
ENDLESS = re.compile(r"(.)\1{15,}", re.DOTALL)


class Unusable(ValueError):
    """A reply that is no usable answer. `silent`: no complete answer came at all."""

    def __init__(self, problem: str, *, silent: bool = False) -> None:
        super().__init__(problem)
        self.silent = silent


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the model, with the arguments as it wrote them."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ChatReply:
    """An answer of a chat model."""

    text: str = ""
    reasoning: str = ""
    finish: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    calls: tuple[ToolCall, ...] = ()
    logprobs: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Streamed:
    """An answer in pieces. `arrivals` are the seconds after which each piece of text came. `complete`: with [DONE]."""

    text: str
    arrivals: tuple[float, ...]
    tokens: int
    complete: bool
    problem: str
    took_s: float


@dataclass(frozen=True)
class Card:
    """A model as /v1/models lists it. `window` is its max_model_len."""

    name: str
    window: int | None


def complete(reply: Reply) -> Reply:
    """Return the reply if it is complete. Raises Unusable."""
    if reply.problem or not reply.status:
        raise Unusable(reply.problem or "no answer", silent=True)
    return reply


def data(reply: Reply) -> Any:
    """Return the JSON of a reply with status 200. Raises Unusable."""
    if complete(reply).status != 200:
        raise Unusable(f"HTTP {reply.status}: {shown(reply.body, SHOWN_ERROR)}")
    try:
        return foreign.loads(reply.body)
    except ValueError:
        raise _strange(reply) from None


def chat(reply: Reply) -> ChatReply:
    """Read the answer of /v1/chat/completions. Raises Unusable."""
    body = data(reply)
    try:
        choice, usage = body["choices"][0], body["usage"]
        message = choice["message"]
        return ChatReply(
            text=str(message.get("content") or ""),
            reasoning=_reasoning(message),
            finish=str(choice.get("finish_reason") or ""),
            tokens=int(usage["completion_tokens"]),
            prompt_tokens=int(usage["prompt_tokens"]),
            calls=tuple(
                ToolCall(str(call["function"]["name"]), str(call["function"]["arguments"]))
                for call in message.get("tool_calls") or ()
            ),
            logprobs=tuple(_logprobs(choice.get("logprobs"))),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise _strange(reply) from None


def vectors(reply: Reply) -> tuple[tuple[float, ...], ...]:
    """Read the answer of /v1/embeddings, in the order of the texts. Raises Unusable."""
    body = data(reply)
    try:
        items = sorted(body["data"], key=lambda item: int(item["index"]))
        return tuple(tuple(float(value) for value in item["embedding"]) for item in items)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _strange(reply) from None


def scores(reply: Reply) -> dict[int, float]:
    """Read the answer of /v1/rerank: the score of each document, by its place in the request. Raises Unusable."""
    body = data(reply)
    try:
        return {int(item["index"]): float(item["relevance_score"]) for item in body["results"]}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _strange(reply) from None


def cards(reply: Reply) -> tuple[Card, ...]:
    """Read the answer of /v1/models. Raises Unusable."""
    body = data(reply)
    try:
        windows = ((str(model["id"]), model.get("max_model_len")) for model in body["data"])
        return tuple(Card(name, None if window is None else int(window)) for name, window in windows)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _strange(reply) from None


def stream(reply: Reply) -> Streamed:
    """Read a streamed answer of /v1/chat/completions, also one that was cut. Raises Unusable for anything else."""
    if not reply.parts:
        complete(reply)
    if reply.status != 200:
        raise Unusable(f"HTTP {reply.status}: {shown(reply.body, SHOWN_ERROR)}")
    pieces = [(at_s, event, *_piece(event)) for at_s, event in events(reply.parts)]
    if not pieces:
        raise _strange(reply)
    return Streamed(
        text="".join(piece for _, _, piece, _ in pieces),
        arrivals=tuple(at_s for at_s, _, piece, _ in pieces if piece),
        tokens=max(tokens for *_, tokens in pieces),
        complete=any(event == DONE for _, event, *_ in pieces),
        problem=reply.problem,
        took_s=reply.took_s,
    )


def events(parts: Sequence[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """Yield the data of server-sent events, each with the time at which it was complete."""
    rest = ""
    for at_s, text in parts:
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            if line.startswith("data:"):
                yield at_s, line.removeprefix("data:").strip()


def shown(text: str, most: int = SHOWN) -> str:
    """Return the start of a text, on one line and quoted, with long runs of a character cut to three."""
    text = ENDLESS.sub(r"\1\1\1...", text)
    return repr(text if len(text) <= most else f"{text[:most]}...")


def _strange(reply: Reply) -> Unusable:
    return Unusable(f"not an OpenAI answer: {shown(reply.body)}")


def _reasoning(message: Mapping[str, Any]) -> str:
    """Return the reasoning under either of its names."""
    return str(message.get("reasoning") or message.get("reasoning_content") or "")


def _logprobs(given: Mapping[str, Any] | None) -> Iterator[float | None]:
    for token in (given or {}).get("content") or ():
        value = token.get("logprob")
        yield None if value is None else float(value)


def _piece(event: str) -> tuple[str, int]:
    """Return text and token count of one event. Raises Unusable for an error within a stream."""
    if event == DONE:
        return "", 0
    try:
        chunk = foreign.loads(event)
        error, choices, usage = chunk.get("error"), chunk.get("choices") or (), chunk.get("usage") or {}
        delta = choices[0].get("delta") or {} if choices else {}
        piece, tokens = str(delta.get("content") or "") + _reasoning(delta), int(usage.get("completion_tokens") or 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unusable(f"not an OpenAI stream: {shown(event)}") from None
    if error:
        raise Unusable(f"an error in the stream: {shown(event, SHOWN_ERROR)}")
    return piece, tokens
