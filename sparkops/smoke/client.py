"""Sending the requests of the smoke suite: each over a connection of its own, each with a deadline of its own."""

from __future__ import annotations

import codecs
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from requests import Session
from requests.exceptions import RequestException, Timeout
from urllib3.exceptions import HTTPError

from sparkops.errors import Interrupted
from sparkops.exchange import Reply, Request
from sparkops.nodes.waiting import Waiting

TRIES = 2  # a connection that fails is tried again once; an answer is never asked for again
PAUSE_S = 1.0
TICK_S = 0.1
Hopeless = Callable[[], str]
"""Polled while an answer is awaited: why it will not come, or empty."""
BROKEN = (RequestException, HTTPError, OSError, EOFError)


@dataclass
class Client:
    """Asks one server. `open` gives sessions that know the way to it; their number is the number of connections.

    `watch` begins to look at the server whenever requests are sent: an answer may be given up before its deadline.
    """

    open: Callable[[], Session]
    api_key: str | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    pause_s: float = PAUSE_S
    watch: Callable[[], Hopeless] | None = None

    def send(self, requests: Sequence[Request]) -> tuple[Reply, ...]:
        """Send the requests at once and wait for all of them. Raises Interrupted."""
        calls = [_Call(request, self) for request in requests]
        for call in calls:
            threading.Thread(target=call.run, daemon=True).start()
        hopeless = self.watch() if self.watch else str
        return tuple(call.reply(hopeless) for call in calls)

    def blackened(self, text: str) -> str:
        """The text without the key, should a server repeat it."""
        return text.replace(self.api_key, "***") if self.api_key else text

    def headers(self, request: Request) -> Mapping[str, str]:
        """The headers of a request. Nothing else ever holds the key."""
        headers = {"Content-Type": "application/json"}
        if self.api_key and not request.keyless:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers


@dataclass
class _Call:
    """One request in progress. A thread fills it; the caller may give it up, because a thread cannot be stopped."""

    request: Request
    client: Client
    began_s: float = field(default_factory=time.monotonic)
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
        """Send it, again if the connection fails before anything came."""
        try:
            waiting = Waiting(self.client.pause_s, cancel=self.client.cancel, tries=TRIES)
            if not self.client.cancel.wait(self.request.after_s):
                with suppress(Interrupted):
                    waiting.poll(self._try, lambda _: self.given_up or self.status or self.late)
        finally:
            self.took_s = time.monotonic() - self.began_s
            self.ended.set()

    def _try(self) -> None:
        self.tries += 1
        self.problem = ""
        self.began_s = time.monotonic()
        body = None if self.request.body is None else json.dumps(self.request.body)
        try:
            with (
                self.client.open() as session,
                session.request(
                    self.request.method,
                    f"http://node{self.request.path}",
                    data=body,
                    headers=self.client.headers(self.request),
                    timeout=self.request.timeout_s,
                    stream=True,
                ) as response,
            ):
                self.status = response.status_code
                self._read(response.iter_content(chunk_size=None))
        except Timeout:
            self.late = True
            self.problem = self._too_late()
        except BROKEN as error:
            self.broken.append(reason(error))
            self.problem = f"the connection broke: {', then: '.join(dict.fromkeys(self.broken))}"

    def _read(self, chunks: Iterable[bytes]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for chunk in chunks:
            if self.given_up:
                return
            self.parts.append((time.monotonic() - self.began_s, self.client.blackened(decoder.decode(chunk))))

    def reply(self, hopeless: Hopeless) -> Reply:
        """Wait for the end, the deadline or a reason not to wait, whichever comes first."""
        deadline = time.monotonic() + self.request.after_s + self.request.timeout_s + TICK_S
        while not self.ended.wait(TICK_S):
            if self.client.cancel.is_set():
                self.given_up = True
                raise Interrupted("interrupted")
            if (why := hopeless()) or time.monotonic() > deadline:
                self.given_up = True
                return self._reply(time.monotonic() - self.began_s, why or self._too_late())
        return self._reply(self.took_s, self.problem)

    def _reply(self, took_s: float, problem: str) -> Reply:
        return Reply(self.status, tuple(self.parts), took_s, problem, self.tries)

    def _too_late(self) -> str:
        what = "whole answer" if self.status else "answer"
        return f"no {what} within {self.request.timeout_s:g} s"


def reason(error: BaseException) -> str:
    """What the connection itself said, without the errors that the layers above made of it."""
    while isinstance(error, RequestException | HTTPError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return str(error) or type(error).__name__
