"""A leader's link to the guard of another node: orders go out, reports come back, both signed."""

from __future__ import annotations

import http.client
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from sparkops.errors import ConnectionLost
from sparkops.guard import messages
from sparkops.guard.bounded import Bounded
from sparkops.guard.listener import HEAD_BYTES, PATH
from sparkops.guard.messages import MAX_BYTES, STALE, Envelope, GuardReply, Orders
from sparkops.swap import wire
from sparkops.swap.orders import Order
from sparkops.swap.seen import Report
from sparkops.swap.values import WireError

CONNECT_S, TOTAL_S = 2.0, 5.0
REFUSED: Mapping[int, str] = {
    HTTPStatus.FORBIDDEN: "its guard refused the signature: it has another key",
    HTTPStatus.SERVICE_UNAVAILABLE: "its guard has no key of this fleet yet",
    HTTPStatus.BAD_REQUEST: "its guard cannot read messages of this version",
}


@dataclass
class PeerLink:
    """A link to the guard of `node`. `key` is the derived key of that node, `leader` the node that sends."""

    node: str
    address: str
    port: int
    key: bytes = field(repr=False)
    leader: str
    progress: Mapping[str, Mapping[str, str]] = field(default_factory=dict, init=False)
    """Of the last reply: by service and container, one line on what it does."""
    _link: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _challenge: str = field(default="", init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def exchange(self, orders: Mapping[str, Order | None]) -> Mapping[str, Report]:
        """Send orders and return the reports, by service, within TOTAL_S seconds.

        Raises ConnectionLost: whether the orders were received is unknown. They may be sent again. One exchange at a
        time; a second thread waits.
        """
        with self._lock:
            deadline_s = time.monotonic() + TOTAL_S
            reply = self._sent(Orders(orders), deadline_s)
            if reply.problem == STALE:
                reply = self._sent(Orders(orders), deadline_s)
        if reply.problem:
            raise ConnectionLost(self.node, f"its guard sent no report: {reply.problem}")
        self.progress = reply.progress
        return reply.reports

    def _sent(self, orders: Orders, deadline_s: float) -> GuardReply:
        """Send once. A reply counts only if it is signed for exactly this message."""
        nonce = secrets.token_hex(16)
        sending = Envelope(
            "order", self.leader, self.node, orders.term, orders.revision, self._link, self._challenge, nonce
        )
        try:
            packed = messages.pack(self.key, sending, wire.dump(Orders, orders))
            envelope, body = messages.unpack(messages.verify(self.key, self._posted(packed, deadline_s)))
            messages.require(envelope, direction="report", sender=self.node, receiver=self.leader, answers=nonce)
            messages.require(envelope, term=sending.term, revision=sending.revision, link=sending.link)
            reply = wire.load(GuardReply, body)
        except (messages.MessageRefused, WireError) as error:
            raise ConnectionLost(self.node, str(error), next_step=error.next_step) from None
        self._challenge = envelope.challenge
        return reply

    def _posted(self, packed: bytes, deadline_s: float) -> bytes:
        """POST a message and return the body of the response."""
        connection = http.client.HTTPConnection(self.address, self.port)
        try:
            connection.sock = self._connected(deadline_s)
            connection.request("POST", PATH, packed, {"Content-Type": "application/octet-stream"})
            response = connection.getresponse()
            body = response.read(MAX_BYTES)
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise ConnectionLost(self.node, f"no reply from {self.address} port {self.port}: {why}") from None
        finally:
            connection.close()
        if not body:
            why = REFUSED.get(response.status, f"HTTP {response.status}")
            raise ConnectionLost(self.node, f"no reply from {self.address} port {self.port}: {why}")
        return body

    def _connected(self, deadline_s: float) -> Any:
        left_s = deadline_s - time.monotonic()
        connection = socket.create_connection((self.address, self.port), timeout=max(min(CONNECT_S, left_s), 0.001))
        return Bounded(connection, deadline_s - time.monotonic(), MAX_BYTES + HEAD_BYTES)
