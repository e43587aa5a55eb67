"""A completion of one token as the test of a release, sent the way of a client's request, and what results mean."""

from __future__ import annotations

import json
import ssl
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import inf

from sparkops.names import Slot
from sparkops.nodes.http import MOST_BYTES
from sparkops.smoke.openai import SHOWN_ERROR, shown
from sparkops.swap.model import Answer

CONNECT_S, ANSWER_S = 2.0, 10.0
MOST_GOT = 1000  # characters of a failure that are kept with a release
FAILURES = 3  # in a row: a release does not answer
IDLE_S, BUSY_S = 10.0, 1.0  # between two completions of a release that answers; of another one, or during a swap
COMPLETIONS = "/v1/chat/completions"
TOKEN_HEADER, SLOT_HEADER, RELEASE_HEADER = "x-sparkops-preview", "x-sparkops-slot", "x-sparkops-release"


class Completion(StrEnum):
    """The result of one completion."""

    RIGHT = "the release answered"
    WRONG = "an error, or another release"
    LATE = "no answer in time"
    CLOSED = "no connection is taken"


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


@dataclass(frozen=True)
class CompletionRequest:
    """One completion of one token, within `answer_s`. `port` is the service's own; `encrypted`: it speaks TLS.

    Without a `release` it goes to an engine itself, which names none.
    """

    service: str
    port: int
    release: str = ""
    slot: Slot = Slot.BLUE
    token: str = ""
    encrypted: bool = False
    answer_s: float = ANSWER_S
    path: str = ""
    """Prefix of the request's path: /SERVICE where the port is that of the one address."""

    def send(self) -> CompletionEnd:
        """Send it and judge the response."""
        connection = self._connection()
        try:
            connection.connect()
        except ssl.SSLError as error:
            return CompletionEnd(Completion.WRONG, f"{COMPLETIONS}: {error}")
        except OSError:
            return CompletionEnd(Completion.CLOSED)
        try:
            connection.sock.settimeout(self.answer_s)
            return self._result(connection)
        except TimeoutError:
            return CompletionEnd(Completion.LATE, f"{COMPLETIONS}: no answer within {self.answer_s:g} s")
        except (OSError, HTTPException) as error:
            return CompletionEnd(Completion.WRONG, f"{COMPLETIONS}: the connection broke: {error!r}"[:MOST_GOT])
        finally:
            connection.close()

    def _result(self, connection: HTTPConnection) -> CompletionEnd:
        message = {"role": "user", "content": "1"}
        body = {"model": self.service, "messages": [message], "max_tokens": 1, "temperature": 0}
        headers = {"Content-Type": "application/json", TOKEN_HEADER: self.token, SLOT_HEADER: self.slot.value}
        connection.request("POST", self.path + COMPLETIONS, json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return CompletionEnd(Completion.WRONG, f"{COMPLETIONS}: an answer of more than {MOST_BYTES} bytes")
        release = response.headers.get(RELEASE_HEADER, "")
        if response.status == HTTPStatus.OK and release == self.release:
            return CompletionEnd(Completion.RIGHT)
        of = "" if release == self.release else f", of {f'release {release}' if release else 'no release'}"
        text = shown(content.decode(errors="replace"), SHOWN_ERROR)
        return CompletionEnd(Completion.WRONG, f"{COMPLETIONS}: HTTP {response.status}{of}: {text}"[:MOST_GOT])

    def _connection(self) -> HTTPConnection:
        """Return a connection to this very node, where the name in the certificate does not matter."""
        if not self.encrypted:
            return HTTPConnection("127.0.0.1", self.port, timeout=CONNECT_S)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return HTTPSConnection("127.0.0.1", self.port, timeout=CONNECT_S, context=context)
