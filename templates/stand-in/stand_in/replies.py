"""The bodies of answers, in vLLM's format."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from stand_in.answer import Answer
from stand_in.asking import Wanted
from stand_in.prose import pieces

LIKELIEST = (" the", " a", ",", " and", ".", " of", " to", " in")
DONE = b"data: [DONE]\n\n"


def dumps(value: Any) -> bytes:
    """Return JSON in the format of vLLM's server."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(value: Any) -> bytes:
    """Return one event of a stream."""
    return b"data: " + dumps(value) + b"\n\n"


class Reply:
    """The answer to one request."""

    def __init__(self, wanted: Wanted, answer: Answer, created: int) -> None:
        self.wanted = wanted
        self.answer = answer
        self.head = {
            "id": f"{'chatcmpl' if wanted.chat else 'cmpl'}-{uuid.uuid4().hex[:16]}",
            "object": ("chat.completion" if wanted.chat else "text_completion"),
            "created": created,
            "model": wanted.model,
        }
        self.call_id = f"chatcmpl-tool-{uuid.uuid4().hex[:16]}"

    def whole(self) -> bytes:
        """Return the body of an answer that is not streamed."""
        choice = self._chat_choice() if self.wanted.chat else self._text_choice()
        return dumps({**self.head, "choices": [choice], "system_fingerprint": None, "usage": self.usage()})

    def usage(self) -> dict[str, Any]:
        """Return the counts of tokens."""
        prompt, said = self.wanted.prompt_tokens, self.answer.count
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + said,
            "completion_tokens": said,
            "prompt_tokens_details": None,
        }

    def _chat_choice(self) -> dict[str, Any]:
        said, thought = "".join(self.answer.content), "".join(self.answer.reasoning) or None
        call = self.answer.call
        message = {
            "role": "assistant",
            "content": None if call else said,
            "refusal": None,
            "function_call": None,
            "tool_calls": [self._call(*call)] if call else [],
            "reasoning": thought,
            "reasoning_content": thought,
        }
        return self._choice(message=message, logprobs=self._logprobs(self.answer.content, 0))

    def _text_choice(self) -> dict[str, Any]:
        return self._choice(text="".join(self.answer.content), logprobs=self._logprobs(self.answer.content, 0))

    def _choice(self, *, finish: bool = True, **said: Any) -> dict[str, Any]:
        reason = self.answer.finish if finish else None
        return {"index": 0, **said, "finish_reason": reason, "stop_reason": None}

    def _call(self, name: str, arguments: str) -> dict[str, Any]:
        return {"id": self.call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    def first(self) -> bytes:
        """Return the event before the first token; empty for a text completion."""
        return self._event(delta={"role": "assistant", "content": ""}) if self.wanted.chat else b""

    def events(self) -> Iterator[bytes]:
        """Yield one event for each token."""
        for number, delta in enumerate(self._deltas()):
            token = delta.get("content")
            logprobs = self._logprobs([token], number) if isinstance(token, str) else None
            said: dict[str, Any] = {"delta": delta} if self.wanted.chat else {"text": token or ""}
            yield self._event(**said, logprobs=logprobs)

    def last(self) -> bytes:
        """Return the end of a stream."""
        said: dict[str, Any] = {"delta": {"content": ""}} if self.wanted.chat else {"text": ""}
        usage = event({**self._chunk(), "choices": [], "usage": self.usage()}) if self.wanted.include_usage else b""
        return self._event(**said, logprobs=None, finish=True) + usage + DONE

    def _deltas(self) -> Iterator[dict[str, Any]]:
        yield from ({"reasoning": token, "reasoning_content": token} for token in self.answer.reasoning)
        yield from ({"content": token} for token in self.answer.content)
        if self.answer.call:
            name, arguments = self.answer.call
            yield {"tool_calls": [{"index": 0, **self._call(name, "")}]}
            yield from ({"tool_calls": [{"index": 0, "function": {"arguments": token}}]} for token in pieces(arguments))

    def _event(self, *, finish: bool = False, **said: Any) -> bytes:
        return event({**self._chunk(), "choices": [self._choice(finish=finish, **said)]})

    def _chunk(self) -> dict[str, Any]:
        return {**self.head, "object": "chat.completion.chunk"} if self.wanted.chat else self.head

    def _logprobs(self, tokens: list[str], first: int) -> dict[str, Any] | None:
        if self.wanted.logprobs is None:
            return None
        said = [self._logprob(token, first + number) for number, token in enumerate(tokens)]
        if self.wanted.chat:
            return {"content": said}
        return {
            "text_offset": [len("".join(tokens[:number])) for number in range(len(tokens))],
            "token_logprobs": [each["logprob"] for each in said],
            "tokens": tokens,
            "top_logprobs": [{top["token"]: top["logprob"] for top in each["top_logprobs"]} for each in said],
        }

    def _logprob(self, token: str, number: int) -> dict[str, Any]:
        own = round(self.answer.logprob * (0.5 + number * 37 % 11 / 10), 4)
        others = [(token, own), *((other, own - 1.5 - rank) for rank, other in enumerate(LIKELIEST) if other != token)]
        top = [_alternative(*other) for other in others[: self.wanted.logprobs]]
        return {**_alternative(token, own), "top_logprobs": top}


def _alternative(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}
