"""A completion of one token as the test of a release, sent the way of a client's request, and what results mean."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from math import inf
from typing import Any

from sparkops.config.serve import Task
from sparkops.node.http import MOST_BYTES
from sparkops.serving.smoke.openai import SHOWN_ERROR, shown
from sparkops.swap.model import Answer

ANSWER_S = 10.0
MOST_GOT = 1000  # characters of a failure that are kept with a release
FAILURES = 3  # in a row: a release does not answer
IDLE_S, BUSY_S = 10.0, 1.0  # between two completions of a release that answers; of another one, or during a swap
COMPLETIONS = "/v1/chat/completions"
PATHS: Mapping[Task, str] = {"chat": COMPLETIONS, "embedding": "/v1/embeddings", "rerank": "/v1/rerank"}
"""By task: the path of the request that tests a release."""


class Completion(StrEnum):
    """The result of one completion."""

    RIGHT = "the release answered"
    WRONG = "an error, or another release"
    LATE = "no answer in time"
    CLOSED = "no connection is taken, or the gateway refuses the client"


@dataclass(frozen=True)
class CompletionEnd:
    """How one completion ended. `got` is what came instead of the right answer, up to MOST_GOT characters."""

    result: Completion
    got: str = ""


@dataclass
class ReleaseHealth:
    """The health of one release: the last verdict, failures in a row, and the engine's own counters."""

    answer: Answer = Answer.UNKNOWN
    failures: int = 0
    next_s: float = -inf
    """When the next completion is due."""
    steps: tuple[float, ...] = ()
    pending: Future[CompletionEnd] | None = None
    got: str = ""
    """What came instead of the last answer."""

    def learn(self, result: Completion, steps: tuple[float, ...] = (), got: str = "") -> None:
        """Update the verdict. An engine that is late and steps is busy, not hung; a closed gateway shows nothing."""
        busy = result is Completion.LATE and bool(steps) and steps != self.steps
        self.steps, self.got = steps, got
        if result is Completion.RIGHT:
            self.answer, self.failures = Answer.YES, 0
        elif result is Completion.CLOSED:
            self.answer = Answer.UNKNOWN
        elif not busy:
            self.failures += 1
            self.answer = Answer.NO if self.failures >= FAILURES else Answer.UNKNOWN
        elif self.answer is Answer.NO:
            self.answer = Answer.UNKNOWN

    def interval_s(self, *, swapping: bool) -> float:
        """Return the seconds from the end of one completion to the next."""
        return IDLE_S if self.answer is Answer.YES and not swapping else BUSY_S


class RequestFailure(StrEnum):
    """Why a request got no whole response, in the words of templates/gateway/program/probe.py."""

    NONE = ""
    UNREACHED = "unreached"
    """No connection was taken."""
    UNANSWERED = "unanswered"
    """A connection was taken, and closed before the first byte of a response."""
    LATE = "late"
    BROKEN = "broken"


@dataclass(frozen=True)
class CompletionReply:
    """What came of a request. `text` is the start of the body, `size` its length in bytes, up to about MOST_BYTES."""

    failure: RequestFailure = RequestFailure.NONE
    why: str = ""
    status: int = 0
    release: str = ""
    """The release that the gateway names; empty in its own responses."""
    text: str = ""
    size: int = 0


def parse_reply(line: Mapping[str, Any]) -> CompletionReply:
    """Parse a reply of the gateway's program. Raises ValueError for another one."""
    try:
        failure = RequestFailure(line["failed"])
        return CompletionReply(failure, line["why"], line["status"], line["release"], line["text"], line["size"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"unexpected reply of the gateway: {error!r}") from None


def judge(reply: CompletionReply, releases: Collection[str], path: str = COMPLETIONS) -> CompletionEnd:
    """Judge a reply to a request for one of `releases` at `path`: several while replicas are replaced.

    A gateway that takes no request, closes its connection or refuses the client shows nothing about the release. A 503
    of its own does: no server of the slot takes a connection.
    """
    if reply.failure:
        return _unanswered(reply, path)
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS and not reply.release:
        return CompletionEnd(Completion.CLOSED)
    if reply.size > MOST_BYTES:
        return CompletionEnd(Completion.WRONG, f"{path}: an answer of more than {MOST_BYTES} bytes")
    if reply.status == HTTPStatus.OK and reply.release in releases:
        return CompletionEnd(Completion.RIGHT)
    named = f"release {reply.release}" if reply.release else "no release"
    of = "" if reply.release in releases else f", of {named}"
    text = shown(reply.text, SHOWN_ERROR)
    return CompletionEnd(Completion.WRONG, f"{path}: HTTP {reply.status}{of}: {text}"[:MOST_GOT])


def _unanswered(reply: CompletionReply, path: str) -> CompletionEnd:
    if reply.failure is RequestFailure.LATE:
        return CompletionEnd(Completion.LATE, f"{path}: no answer within {ANSWER_S:g} s")
    if reply.failure in (RequestFailure.UNREACHED, RequestFailure.UNANSWERED):
        return CompletionEnd(Completion.CLOSED)
    return CompletionEnd(Completion.WRONG, f"{path}: the connection broke: {reply.why}"[:MOST_GOT])


def body(service: str, task: Task = "chat") -> str:
    """Return the body of the request: one token to generate, to embed or to rank."""
    if task == "embedding":
        return json.dumps({"model": service, "input": "1"})
    if task == "rerank":
        return json.dumps({"model": service, "query": "1", "documents": ["1"]})
    message = {"role": "user", "content": "1"}
    return json.dumps({"model": service, "messages": [message], "max_tokens": 1, "temperature": 0})
