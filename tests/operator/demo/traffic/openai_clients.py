"""Clients that are OpenAI's own Python package, each with a connection pool of its own: short requests and streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from openai import OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

QUESTION: ChatCompletionUserMessageParam = {"role": "user", "content": "What is the capital of France?"}
JOURNEY: ChatCompletionUserMessageParam = {"role": "user", "content": "Tell me about a journey in a few sentences."}
ANSWER = "Paris"
PAUSE_S = 0.5


@dataclass(frozen=True)
class Call:
    """One request that was answered whole. `start_s`: when it was sent, in seconds since the epoch."""

    kind: Literal["short", "stream"]
    start_s: float
    release: str


@dataclass
class Clients:
    """Clients without retries. Any error of the package ends its client, and is raised when the load ends."""

    base_url: str
    model: str
    calls: list[Call] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    futures: list[Future[None]] = field(default_factory=list)

    @contextmanager
    def running(self, count: int = 8) -> Iterator[Clients]:
        """Send from `count` clients, every other one streams. Raises the first error of a client."""
        with ThreadPoolExecutor(count) as threads:
            self.futures = [threads.submit(self._send, "stream" if number % 2 else "short") for number in range(count)]
            try:
                yield self
            finally:
                self.ended.set()
        for future in self.futures:
            future.result()

    def wait_for_more(self, count: int, within_s: float = 300.0) -> None:
        """Wait until each kind has `count` further answers. Raises TimeoutError, or the error of a client."""
        end, known = time.monotonic() + within_s, len(self.calls)
        while min(self._count("short", known), self._count("stream", known)) < count:
            for future in self.futures:
                if future.done():
                    future.result()
            if time.monotonic() > end:
                raise TimeoutError(f"{count} answers of each kind did not come within {within_s:g} s")
            time.sleep(0.1)

    def _count(self, kind: str, begin: int) -> int:
        return sum(call.kind == kind for call in self.calls[begin:])

    def _send(self, kind: Literal["short", "stream"]) -> None:
        with OpenAI(base_url=f"{self.base_url}/v1", api_key="none", max_retries=0) as client:
            while not self.ended.wait(PAUSE_S):
                self.calls.append(_stream(client, self.model) if kind == "stream" else _short(client, self.model))


def _short(client: OpenAI, model: str) -> Call:
    start_s = time.time()
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=[QUESTION], temperature=0, max_completion_tokens=16
    )
    text = raw.parse().choices[0].message.content or ""
    assert ANSWER in text, f"{raw.headers}: {text!r}"
    return Call("short", start_s, raw.headers["x-sparkops-release"])


def _stream(client: OpenAI, model: str) -> Call:
    start_s = time.time()
    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=[JOURNEY], temperature=0, max_completion_tokens=50, stream=True
    )
    finished = None
    for chunk in raw.parse():
        finished = chunk.choices[0].finish_reason or finished
    assert finished, "the stream ended without a finish reason"
    return Call("stream", start_s, raw.headers["x-sparkops-release"])
