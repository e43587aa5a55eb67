"""Send the requests of the smoke suite, each over its own connection with its own deadline, and detect a stall.

A busy engine takes steps, one that hangs takes none: where the network between two ranks is cut, no connection breaks,
/health returns 200, and every request waits for ever.
"""

from __future__ import annotations

import codecs
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from math import inf

from requests import Session
from requests.exceptions import RequestException, Timeout
from urllib3.exceptions import HTTPError

from sparkops.engines import endpoints, load, metrics
from sparkops.engines.load import Load
from sparkops.errors import Interrupted, SparkopsError
from sparkops.exchange import Reply, Request
from sparkops.node.streams import run_in_thread
from sparkops.node.survey import node_survey
from sparkops.node.waiting import Waiting

TRIES = 2  # a failed connection is retried once; an answered request is never repeated
PAUSE_S = 1.0
TICK_S = 0.1
POLL_S = 1.0
BROKEN = (RequestException, HTTPError, OSError, EOFError)


class EngineBusy(SparkopsError):
    """An answer was late and the engine made steps meanwhile: it neither passed nor failed."""


@dataclass
class Client:
    """Sends requests to one server. `open` returns a session connected to it, one for each connection.

    `watch` starts to watch the server whenever requests are sent: a stall ends the wait before the deadline.
    """

    open: Callable[[], Session]
    cancel: threading.Event = field(default_factory=threading.Event)
    pause_s: float = PAUSE_S
    watch: Callable[[], StallDetector] | None = None

    def send(self, requests: Sequence[Request]) -> tuple[Reply, ...]:
        """Send the requests at once and wait for all of them.

        Raises Interrupted, with `watch` EngineBusy, and BlockingIOError where no thread can be started.
        """
        calls = [_Call(request, self) for request in requests]
        for call in calls:
            run_in_thread(call.run)
        detector = self.watch() if self.watch else None
        replies = tuple(call.reply(detector) for call in calls)
        late = next((reply for call, reply in zip(calls, replies, strict=True) if call.late), None)
        if late and detector and detector.steps_on:
            raise EngineBusy(f"{late.problem}, and the engine makes steps")
        return replies


@dataclass
class _Call:
    """One request in progress. A thread fills it; the caller may abandon it, because a thread cannot be stopped."""

    request: Request
    client: Client
    start_s: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)
    given_up: bool = False
    status: int = 0
    parts: list[tuple[float, str]] = field(default_factory=list)
    problem: str = ""
    broken: list[str] = field(default_factory=list)
    tries: int = 0
    late: bool = False
    took_s: float = 0.0

    def run(self) -> None:
        """Send it, again if the connection fails before a response."""
        try:
            waiting = Waiting(self.client.pause_s, cancel=self.client.cancel, tries=TRIES)
            if not self.client.cancel.wait(self.request.after_s):
                with suppress(Interrupted):
                    waiting.poll(self._try, lambda _: self.given_up or self.status or self.late)
        finally:
            self.took_s = time.monotonic() - self.start_s
            self.ended.set()

    def _try(self) -> None:
        self.tries += 1
        self.problem = ""
        self.start_s = time.monotonic()
        body = None if self.request.body is None else json.dumps(self.request.body)
        try:
            with (
                self.client.open() as session,
                session.request(
                    self.request.method,
                    f"http://node{self.request.path}",
                    data=body,
                    headers={"Content-Type": "application/json"},
                    timeout=self.request.timeout_s,
                    stream=True,
                ) as response,
            ):
                self.status = response.status_code
                self._read(response.iter_content(chunk_size=None))
        except BROKEN as error:
            if isinstance(error, Timeout) or isinstance(cause(error), TimeoutError):  # that of a body is no Timeout
                self.late = True
                self.problem = self._too_late()
                return
            self.broken.append(reason(error))
            self.problem = f"the connection broke: {', then: '.join(dict.fromkeys(self.broken))}"

    def _read(self, chunks: Iterable[bytes]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for chunk in chunks:
            if self.given_up:
                return
            self.parts.append((time.monotonic() - self.start_s, decoder.decode(chunk)))

    def reply(self, detector: StallDetector | None) -> Reply:
        """Wait for the end, the deadline or a stall, whichever comes first."""
        deadline = time.monotonic() + self.request.after_s + self.request.timeout_s + TICK_S
        while not self.ended.wait(TICK_S):
            if self.client.cancel.is_set():
                self.given_up = True
                raise Interrupted("interrupted")
            stall = detector.problem() if detector else ""
            if stall or time.monotonic() > deadline:
                self.given_up, self.late = True, not stall
                return self._reply(time.monotonic() - self.start_s, stall or self._too_late())
        return self._reply(self.took_s, self.problem)

    def _reply(self, took_s: float, problem: str) -> Reply:
        return Reply(self.status, tuple(self.parts), took_s, problem, self.tries)

    def _too_late(self) -> str:
        answer = "whole answer" if self.status else "answer"
        return f"no {answer} within {self.request.timeout_s:g} s"


def cause(error: BaseException) -> BaseException:
    """Return the error of the connection itself, without those that the layers above wrapped around it."""
    while isinstance(error, RequestException | HTTPError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error


def reason(error: BaseException) -> str:
    """Return the text of the error of the connection itself."""
    error = cause(error)
    return str(error) or type(error).__name__


def load_now(open_session: Callable[[], Session]) -> Load | None:
    """Return the requests of an engine now and its tokens so far; None if it does not show them."""
    with closing(open_session()) as asking:
        page = endpoints.metrics_page(asking)
    try:
        return load.read(node_survey.figures((200, page or ""), load.METRICS))
    except ValueError:
        return None


@dataclass
class StallDetector:
    """Polls the counters of an engine. `open` returns a session connected to it; `stall_s` is in seconds."""

    open: Callable[[], Session]
    stall_s: float
    poll_s: float = POLL_S
    steps: tuple[float, ...] = ()
    stepped_s: float = field(default_factory=time.monotonic)
    polled_s: float = -inf
    stepped: bool = False
    """Whether a step was counted since the watch began."""

    @property
    def steps_on(self) -> bool:
        """Whether the engine has made steps and has not stalled since."""
        return self.stepped and not self.problem()

    def problem(self) -> str:
        """Return the problem after too long without a step; else empty. Polls every second, not at every call.

        An engine without counters never stalls; one that does not answer does.
        """
        if (now := time.monotonic()) - self.polled_s >= self.poll_s:
            self._poll(now)
            self.polled_s = time.monotonic()
        return f"no engine step for {self.stall_s:g} s" if now - self.stepped_s > self.stall_s else ""

    def _poll(self, now: float) -> None:
        with self.open() as session:
            page = endpoints.metrics_page(session)
        if page is None:
            return
        steps = metrics.steps(page)
        if not steps or steps != self.steps:
            self.stepped = self.stepped or bool(steps and self.steps)
            self.steps, self.stepped_s = steps, now
