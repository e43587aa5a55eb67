"""One question to a release, the way that a client's request goes: through the gateway, or to the engine itself."""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from sparkops.nodes.http import MOST_BYTES
from sparkops.release import Slot

CONNECT_S, ANSWER_S = 2.0, 10.0
COMPLETIONS = "/v1/chat/completions"
TOKEN_HEADER, SLOT_HEADER, RELEASE_HEADER = "x-sparkops-preview", "x-sparkops-slot", "x-sparkops-release"


class Said(StrEnum):
    """What came of one question."""

    RIGHT = "the release answered"
    WRONG = "an error, or another release"
    LATE = "no answer in time"
    CLOSED = "no connection is taken"


@dataclass(frozen=True)
class Question:
    """One completion of one token, within `answer_s`. `port` is the service's own; `encrypted`: it speaks TLS.

    Without a `release` an engine itself is asked, which names none.
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

    def ask(self) -> Said:
        """Send it and judge what came back."""
        connection = self._connection()
        try:
            connection.connect()
        except ssl.SSLError:
            return Said.WRONG
        except OSError:
            return Said.CLOSED
        try:
            connection.sock.settimeout(self.answer_s)
            return self._answer(connection)
        except TimeoutError:
            return Said.LATE
        except (OSError, HTTPException):
            return Said.WRONG
        finally:
            connection.close()

    def _answer(self, connection: HTTPConnection) -> Said:
        message = {"role": "user", "content": "1"}
        body = {"model": self.service, "messages": [message], "max_tokens": 1, "temperature": 0}
        headers = {"Content-Type": "application/json", TOKEN_HEADER: self.token, SLOT_HEADER: self.slot.value}
        connection.request("POST", self.path + COMPLETIONS, json.dumps(body), headers)
        reply = connection.getresponse()
        if len(reply.read(MOST_BYTES + 1)) > MOST_BYTES:
            return Said.WRONG
        right = reply.status == HTTPStatus.OK and reply.headers.get(RELEASE_HEADER, "") == self.release
        return Said.RIGHT if right else Said.WRONG

    def _connection(self) -> HTTPConnection:
        """A connection to this very node: whose certificate it is does not matter."""
        if not self.encrypted:
            return HTTPConnection("127.0.0.1", self.port, timeout=CONNECT_S)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return HTTPSConnection("127.0.0.1", self.port, timeout=CONNECT_S, context=context)
