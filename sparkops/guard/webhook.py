"""The sender of notices to the receivers of the inventory: a thread for each, so that none waits for another.

Nothing else waits for these threads: notices lie in the outbox (guard/outbox.py). Only the inventory names a receiver:
an answer is never followed, and no proxy of the environment is used.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from sparkops import __version__
from sparkops.errors import SparkopsError
from sparkops.guard.bounded import Bounded
from sparkops.guard.monitoring import CARRIERS
from sparkops.guard.operator_socket import Request, Verbs
from sparkops.guard.outbox import Outbox
from sparkops.guard.state import State, WebhookTarget
from sparkops.notices import delivery, message
from sparkops.notices.delivery import Outcome, Schedule
from sparkops.notices.message import Numbered

CONNECT_S, TOTAL_S = 5.0, 15.0
"""Seconds for the connection, and for one attempt in all after it: receivers answer at once and work later."""
HEAD_BYTES, BODY_BYTES = 16 * 1024, 4 * 1024
"""Most bytes of the answer that are read: its head, and so much of a body that nobody needs."""
IDLE_S = 30.0
"""Seconds between two looks without a notice; a new one wakes the thread."""


@dataclass(frozen=True)
class Attempt:
    """The result of one attempt. `why`: what the receiver answered, or why it did not; empty if it was delivered."""

    outcome: Outcome
    why: str = ""


def shown(url: str) -> str:
    """Return the receiver as people may see it: paths and queries of webhooks are often secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def post(url: str, key: str, body: bytes, notice_id: str, now: float) -> Attempt:
    """Send one notice to a receiver. Takes at most CONNECT_S for each of its addresses, and TOTAL_S after that."""
    parts = urlsplit(url)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"sparkops/{__version__}",
        message.EVENT_ID: notice_id,
        message.SIGNATURE: message.signature(key, body, int(now)),
    }
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)  # it connects nowhere by itself
    try:
        connection.sock = _connected(parts)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, {"Host": parts.netloc.rpartition("@")[2], **headers})
        response = connection.getresponse()
        result = delivery.outcome(response.status)
        with suppress(OSError, http.client.HTTPException):  # the status has said it
            response.read(BODY_BYTES)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Attempt(Outcome.UNANSWERED, str(error) or type(error).__name__)
    finally:
        connection.close()
    return Attempt(result, "" if result is Outcome.DELIVERED else f"HTTP {response.status}")


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


Post = Callable[[str, str, bytes, str, float], Attempt]


@dataclass
class Receiver:
    """One receiver: `step` makes the attempt that is due."""

    name: str
    """Its name in the outbox: the URL itself may be a secret."""
    url: str = field(repr=False)
    key: str = field(repr=False)
    node: str
    outbox: Outbox
    log: Callable[[str], None]
    post: Post = post
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    over: threading.Event = field(default_factory=threading.Event)
    schedule: Schedule = field(default_factory=Schedule)
    failing: str = ""
    """Why the last attempt failed; empty if none did since the last delivery."""

    def run(self) -> None:
        """Send until `over` is set."""
        while not self.over.is_set():
            with self.outbox.changed:  # a notice that comes meanwhile ends the pause if it is due before
                while not self.over.is_set() and (left_s := self.left_s()) > 0:
                    self.outbox.changed.wait(left_s)
            if not self.over.is_set():
                self.step()

    def left_s(self) -> float:
        """Return the seconds until the next attempt is due; 0 where one is, IDLE_S without a notice."""
        due, aside = self.outbox.due(self.name), self.outbox.aside(self.name)
        following = self.schedule.following(due[0].n if due else None, aside)
        return max(0.0, following[1] - self.clock()) if following else IDLE_S

    def step(self) -> None:
        """Make the attempt that is due, if one is."""
        due, aside = self.outbox.due(self.name), self.outbox.aside(self.name)
        following = self.schedule.following(due[0].n if due else None, aside)
        if following is None or following[1] > self.clock():
            return
        n = following[0]
        if n in aside:
            numbered, lost = aside[n]
        elif due:
            numbered, lost = due
        attempt = self.send(numbered, lost)
        if attempt.outcome is Outcome.DELIVERED:
            self.outbox.sent(self.name, n)
            self.schedule = self.schedule.ended(n, resumes=n in aside)
            if self.failing:
                self.log(f"webhook {shown(self.url)}: delivers again")
            self.failing = ""
            return
        if attempt.why != self.failing:
            self.log(f"webhook {shown(self.url)}: {attempt.why}; notice {n} is sent again")
        self.failing, now_s = attempt.why, self.clock()
        self.schedule = self.schedule.failed(n, attempt.outcome, now_s, aside)
        attempts = self.schedule.of(n)
        if attempts.given_up(now_s):
            self.log(f"webhook {shown(self.url)}: {attempt.why}; notice {n} is lost to it")
            self.outbox.skip(self.name, n, lost)
            self.schedule = self.schedule.ended(n, resumes=False)
        elif attempts.is_overtaken and n not in aside:
            self.outbox.overtake(self.name, n, lost)
            self.schedule = self.schedule.overtaken(n)

    def send(self, numbered: Numbered, lost: int = 0) -> Attempt:
        """Send one notice once."""
        body = message.packed(message.as_json(self.node, numbered, lost))
        return self.post(self.url, self.key, body, numbered.id, self.now())

    def close(self) -> None:
        """End the thread after its attempt."""
        self.over.set()
        with self.outbox.changed:
            self.outbox.changed.notify_all()


def _receiver_name(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


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
        try:
            target = self.state.webhook()
        except (SparkopsError, OSError) as error:
            self.log(f"no notices sent: {error}")
            return
        with self._mutex:
            self._begin(target)

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
        outbox = self.state.outbox
        outbox.receivers([_receiver_name(url) for url in urls])
        self._receivers = tuple(
            Receiver(_receiver_name(url), url, target.key if target else "", self.node, outbox, self.log, self.post)
            for url in urls
        )
        for receiver in self._receivers:
            threading.Thread(target=receiver.run, name=f"webhook {receiver.name}", daemon=True).start()

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

    def verbs(self) -> Mapping[str, Callable[[Request], object]]:
        """Return the requests of operators: the notices, and a test."""
        return {"notices": self._notices, "notices_test": lambda _: self.test()}

    def _notices(self, request: Request) -> dict[str, Any]:
        """Return the notices after number `since`; without any, wait for one up to `wait_s` seconds."""
        outbox, since = self.state.outbox, int(request.get("since", 0))
        deadline_s = time.monotonic() + float(request.get("wait_s", 0.0))
        with outbox.changed:
            while not (notices := outbox.since(since)) and (left_s := deadline_s - time.monotonic()) > 0:
                outbox.changed.wait(left_s)
        receivers = [{"receiver": shown(receiver.url), "failing": receiver.failing} for receiver in self._receivers]
        listed = [message.as_json(self.node, numbered) for numbered in notices]
        return {"notices": listed, "last": outbox.last, "receivers": receivers}

    def test(self) -> list[dict[str, str]]:
        """Send a test to every receiver once, past the queue; return each with what went wrong, empty for nothing."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        test = Numbered(0, f"test-{time.time_ns():x}", at, message.TEST)
        return [{"receiver": shown(item.url), "problem": item.send(test).why} for item in self._receivers]

    def close(self) -> None:
        """End all threads; an attempt in progress is repeated by the next guard."""
        with self._mutex:
            for receiver in self._receivers:
                receiver.close()


def _target(request: Request | None) -> WebhookTarget | None:
    return WebhookTarget(tuple(map(str, request["urls"])), str(request["key"])) if request else None
