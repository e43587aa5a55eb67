"""Parse requests for completions as vLLM does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from stand_in.answer import Ask
from stand_in.prose import pieces

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
BAD = "BadRequestError"
AROUND = 4  # tokens that a chat template adds to a message


class Refused(Exception):
    """A request that gets an error in OpenAI's format."""

    def __init__(self, status: HTTPStatus, message: str, param: str | None = None, kind: str = BAD) -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": kind, "param": param, "code": status.value}


@dataclass(frozen=True)
class Wanted:
    """One request. `logprobs`: number of alternatives to each token; None without log probabilities."""

    chat: bool
    model: str
    ask: Ask
    prompt_tokens: int
    stream: bool = False
    include_usage: bool = False
    logprobs: int | None = None


def bad(message: str, param: str | None = None) -> Refused:
    """Return the error for an invalid request."""
    return Refused(HTTPStatus.BAD_REQUEST, message, param)


def read(path: str, content: bytes) -> Wanted:
    """Parse a body. Raises Refused."""
    try:
        body = json.loads(content)
    except ValueError as error:
        raise bad(f"JSON decode error: {error}") from None
    if not isinstance(body, dict):
        raise bad("Input should be a valid dictionary")
    chat = path == CHAT
    ask, prompt_tokens = _chat(body) if chat else _text(body)
    options = body.get("stream_options") or {}
    return Wanted(
        chat=chat,
        model=str(body.get("model") or ""),
        ask=ask,
        prompt_tokens=prompt_tokens,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        logprobs=_logprobs(body, chat=chat),
    )


def room(wanted: Wanted, model_len: int) -> int:
    """Return the limit of the answer's tokens. Raises Refused for a request that is too long."""
    left, most = model_len - wanted.prompt_tokens, wanted.ask.max_tokens
    if left < 1:
        raise bad(
            f"This model's maximum context length is {model_len} tokens. However, your request has "
            f"{wanted.prompt_tokens} input tokens. Please reduce the length of the input messages.",
            "input_tokens",
        )
    if most is not None and most > left:
        raise bad(
            f"'max_tokens' or 'max_completion_tokens' is too large: {most}. This model's maximum context length is "
            f"{model_len} tokens and your request has {wanted.prompt_tokens} input tokens "
            f"({most} > {model_len} - {wanted.prompt_tokens}).",
            "max_tokens",
        )
    return left


def _chat(body: dict[str, Any]) -> tuple[Ask, int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise bad("Field required: messages", "messages")
    texts = [_said(each) for each in messages]
    prompt = "\n".join(texts)
    asked = [text for each, text in zip(messages, texts, strict=True) if each.get("role") == "user"]
    kwargs = body.get("chat_template_kwargs") or {}
    ask = Ask(
        prompt=prompt,
        question=asked[-1] if asked else prompt,
        max_tokens=_most(body),
        tools=[each for each in body.get("tools") or [] if isinstance(each, dict)],
        tool_choice=body.get("tool_choice", "auto"),
        tool_said=texts[-1] if messages[-1].get("role") == "tool" else None,
        schema=_schema(body),
        thinking=isinstance(kwargs, dict) and kwargs.get("enable_thinking") is True,
        ignore_eos=body.get("ignore_eos") is True,
    )
    return ask, len(pieces(prompt)) + AROUND * len(messages)


def _text(body: dict[str, Any]) -> tuple[Ask, int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, list):
        prompt = " ".join(str(each) for each in prompt)
    if not isinstance(prompt, str):
        raise bad("Field required: prompt", "prompt")
    most = _most(body) or 16
    ask = Ask(prompt, prompt, most, schema=_schema(body), ignore_eos=body.get("ignore_eos") is True)
    return ask, max(1, len(pieces(prompt)))


def _said(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _most(body: dict[str, Any]) -> int | None:
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    if most is None:
        return None
    if not isinstance(most, int) or most < 1:
        raise bad(f"max_tokens must be at least 1, got {most}.", "max_tokens")
    return most


def _schema(body: dict[str, Any]) -> Any:
    """Return the schema of the answer: a JSON schema, or an object."""
    wanted = body.get("response_format") or {}
    match wanted.get("type") if isinstance(wanted, dict) else None:
        case "json_schema":
            return (wanted.get("json_schema") or {}).get("schema") or {"type": "object"}
        case "json_object":
            return {"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}}
        case _:
            structured = body.get("structured_outputs")
            return structured.get("json") if isinstance(structured, dict) else None


def _logprobs(body: dict[str, Any], *, chat: bool) -> int | None:
    wanted = body.get("logprobs")
    if chat:
        return int(body.get("top_logprobs") or 0) if wanted is True else None
    return wanted if isinstance(wanted, int) else None
