"""The sender of notices to the receivers of the inventory: a thread for each, so that none waits for another.

A notice is tried a few times, and kept nowhere: the history of its service has it. Only the inventory names a receiver:
an answer is never followed, and no proxy of the environment is used.
"""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from sparkops import __version__
from sparkops.errors import SparkopsError
from sparkops.guard.bounded import Bounded
from sparkops.guard.disk.state import State, WebhookTarget
from sparkops.guard.lead.operator_socket import Request, Verbs
from sparkops.guard.report import message
from sparkops.guard.report.monitoring import CARRIERS
from sparkops.swap.catalogue import Notice

CONNECT_S, TOTAL_S = 5.0, 15.0
"""Seconds for the connection, and for one attempt in all after it: receivers answer at once and work later."""
HEAD_BYTES, BODY_BYTES = 16 * 1024, 4 * 1024
"""Most bytes of the answer that are read: its head, and so much of a body that nobody needs."""
PAUSES_S = (0.0, 2.0, 20.0)
"""Seconds before each attempt to send a notice: a receiver that restarts is back by then."""
MOST = 50
"""Most notices that wait for one receiver; the oldest of more is lost."""
Post = Callable[[str, bytes], str]


def shown(url: str) -> str:
    """Return the receiver as people may see it: paths and queries of webhooks are often secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def post(url: str, body: bytes) -> str:
    """Send one notice; return why the receiver has not taken it, empty if it has.

    Takes at most CONNECT_S for each address of the receiver, and TOTAL_S after that.
    """
    parts = urlsplit(url)
    headers = {"Content-Type": "application/json", "User-Agent": f"sparkops/{__version__}"}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)  # it connects nowhere by itself
    try:
        connection.sock = _connected(parts)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, {"Host": parts.netloc.rpartition("@")[2], **headers})
        response = connection.getresponse()
        with suppress(OSError, http.client.HTTPException):  # the status has said it
            response.read(BODY_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()
    return "" if 200 <= response.status < 300 else f"HTTP {response.status}"


def _connected(parts: SplitResult) -> Any:
    """Return a bounded connection to a receiver. Raises OSError, ssl.SSLError for a certificate that is not trusted."""
    encrypted = parts.scheme == "https"
    raw = socket.create_connection((parts.hostname or "", parts.port or (443 if encrypted else 80)), timeout=CONNECT_S)
    try:
        raw.settimeout(TOTAL_S)
        sock = ssl.create_default_context().wrap_socket(raw, server_hostname=parts.hostname) if encrypted else raw
    except BaseException:
        raw.close()
        raise
    return Bounded(sock, TOTAL_S, HEAD_BYTES + BODY_BYTES)


@dataclass
class Receiver:
    """One receiver, and the notices that wait for it in memory."""

    url: str = field(repr=False)
    log: Callable[[str], None]
    post: Post = post
    waiting: deque[Mapping[str, Any]] = field(default_factory=deque)
    closed: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)
    """It guards `waiting` and `closed`."""

    def add(self, notice: Mapping[str, Any]) -> None:
        """Let a notice wait until those before it are sent. Never blocks."""
        with self.changed:
            if len(self.waiting) == MOST:
                self._lose(self.waiting.popleft(), f"more than {MOST} notices wait")
            self.waiting.append(notice)
            self.changed.notify()

    def run(self) -> None:
        """Send until it is closed."""
        while notice := self._following():
            self.send(notice)

    def _following(self) -> Mapping[str, Any] | None:
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.waiting)
            return None if self.closed else self.waiting.popleft()

    def send(self, notice: Mapping[str, Any]) -> None:
        """Send one notice, in a few attempts."""
        body, why = json.dumps(notice).encode(), ""
        for pause_s in PAUSES_S:
            with self.changed:
                if self.changed.wait_for(lambda: self.closed, pause_s):
                    return
            why = self.post(self.url, body)
            if not why:
                return
        self._lose(notice, why)

    def _lose(self, notice: Mapping[str, Any], why: str) -> None:
        self.log(f"webhook {shown(self.url)}: {why}; not sent: {notice['code']}: {notice['text']}")

    def close(self) -> None:
        """End the thread after its attempt; what waits is lost."""
        with self.changed:
            self.closed = True
            self.changed.notify()


@dataclass
class Webhooks:
    """The receivers of one guard, as its state says."""

    state: State
    node: str
    log: Callable[[str], None]
    post: Post = post
    _target: WebhookTarget | None = None
    _receivers: tuple[Receiver, ...] = ()
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Send to the receivers of the state. One that cannot be read sends nothing, and stops nothing."""
        self.state.listeners.append(self.add)
        try:
            target = self.state.webhook()
        except (SparkopsError, OSError) as error:
            self.log(f"no notices sent: {error}")
            return
        with self._mutex:
            self._begin(target)

    def add(self, notice: Notice) -> None:
        """Send a notice to every receiver. Never blocks."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sent = message.as_json(self.node, at, secrets.token_hex(8), notice)
        for receiver in self._receivers:
            receiver.add(sent)

    def change(self, target: WebhookTarget | None) -> None:
        """Send there from now on, or nowhere. Raises OSError where that cannot be written: nothing has changed then."""
        with self._mutex:
            self.state.write_webhook(target)
            if target != self._target:
                for receiver in self._receivers:
                    receiver.close()
                self._begin(target)

    def _begin(self, target: WebhookTarget | None) -> None:
        self._target, urls = target, dict.fromkeys(target.urls if target else ())
        self._receivers = tuple(Receiver(url, self.log, self.post) for url in urls)
        for receiver in self._receivers:
            threading.Thread(target=receiver.run, name="webhook", daemon=True).start()

    def carried(self, verbs: Verbs) -> Verbs:
        """Return the verbs, of which those that say where figures are served also change where notices are sent.

        A request of a client that knows nothing of it changes nothing; None ends it.
        """

        def carrying(act: Callable[[Request], object]) -> Callable[[Request], object]:
            def reply(request: Request) -> object:
                if "webhook" in request:
                    self.change(_target(request["webhook"]))
                return act(request)

            return reply

        return {name: carrying(act) if name in CARRIERS else act for name, act in verbs.items()}

    def close(self) -> None:
        """End all threads."""
        with self._mutex:
            for receiver in self._receivers:
                receiver.close()


def _target(request: Request | None) -> WebhookTarget | None:
    return WebhookTarget(tuple(map(str, request["urls"]))) if request else None
