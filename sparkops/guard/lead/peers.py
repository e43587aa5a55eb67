"""The links of a leader to the guards of other nodes: signed orders go out, signed reports come back."""

from __future__ import annotations

import http.client
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from sparkops.errors import ConnectionLost, SparkopsError
from sparkops.guard import messages
from sparkops.guard.bounded import Bounded
from sparkops.guard.follow.listener import HEAD_BYTES, PATH
from sparkops.guard.messages import MAX_BYTES, STALE, Envelope, GuardReply, Orders
from sparkops.swap import wire
from sparkops.swap.fleet_state import Report
from sparkops.swap.orders import Order
from sparkops.swap.wire import WireError

CONNECT_S, TOTAL_S = 2.0, 5.0
FRESH_S = 8.0  # an older report says nothing: a lost exchange takes 5 s, and the next one may succeed
PAUSE_S, IDLE_S = 0.3, 1.0  # between two exchanges during a swap, and without one
ServiceOrders = Mapping[str, Order | None]
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
    _known: str = field(default="", init=False)
    """The IP address at which that guard replied last, so that no exchange waits for a name service."""
    _link: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _challenge: str = field(default="", init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def exchange(self, orders: Mapping[str, Order | None]) -> Mapping[str, Report]:
        """Send orders and return the reports, by service, within TOTAL_S seconds.

        Raises ConnectionLost: whether the orders arrived is unknown; they may be sent again. A second thread waits.
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
        address, self._known = self._known or self.address, ""  # resolved again after a failure
        nonce = secrets.token_hex(16)
        term, revision = orders.term, orders.revision
        order = Envelope("order", self.leader, self.node, term, revision, self._link, self._challenge, nonce)
        try:
            packed = messages.pack(self.key, order, wire.dump(Orders, orders))
            posted, peer = self._posted(packed, address, deadline_s)
            envelope, body = messages.unpack(messages.verify(self.key, posted))
            messages.require(envelope, direction="report", sender=self.node, receiver=self.leader, answers=nonce)
            messages.require(envelope, term=term, revision=revision, link=self._link)
            reply = wire.load(GuardReply, body)
        except (messages.MessageRefused, WireError) as error:
            raise ConnectionLost(self.node, str(error), next_step=error.next_step) from None
        self._challenge, self._known = envelope.challenge, peer
        return reply

    def _posted(self, packed: bytes, address: str, deadline_s: float) -> tuple[bytes, str]:
        """POST a message. Returns the body of the response, and the IP address that it came from."""
        connection = http.client.HTTPConnection(self.address, self.port)
        try:
            bounded = self._connected(address, deadline_s)
            connection.sock, peer = bounded, str(bounded.connection.getpeername()[0])
            connection.request("POST", PATH, packed, {"Content-Type": "application/octet-stream"})
            response = connection.getresponse()
            body = response.read(MAX_BYTES)
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # a name of an empty or too long label
            why = str(error) or type(error).__name__
            raise ConnectionLost(self.node, f"no reply from {self.address} port {self.port}: {why}") from None
        finally:
            connection.close()
        if not body:
            why = REFUSED.get(response.status, f"HTTP {response.status}")
            raise ConnectionLost(self.node, f"no reply from {self.address} port {self.port}: {why}")
        return body, peer

    def _connected(self, address: str, deadline_s: float) -> Any:
        timeout_s = max(min(CONNECT_S, deadline_s - time.monotonic()), 0.001)
        connection = socket.create_connection((address, self.port), timeout=timeout_s)
        return Bounded(connection, deadline_s - time.monotonic(), MAX_BYTES + HEAD_BYTES)


class GuardLink(Protocol):
    """The link to one guard."""

    node: str

    @property
    def progress(self) -> Mapping[str, Mapping[str, str]]:
        """Of the last reply: by service and container, how far an engine is."""

    def exchange(self, orders: ServiceOrders) -> Mapping[str, Report]:
        """Send orders and return the reports, by service. Raises ConnectionLost."""


@dataclass
class LastReply:
    """The last reply of one guard, and its time in monotonic seconds."""

    reports: Mapping[str, Report]
    progress: Mapping[str, Mapping[str, str]]
    at_s: float


@dataclass
class Reach:
    """Exchanges with every guard in threads. `orders` returns the orders for a node, for the boot that it reported."""

    links: tuple[GuardLink, ...]
    orders: Callable[[str, Mapping[str, str]], ServiceOrders]
    busy: Callable[[], bool]
    log: Callable[[str], None]
    last: dict[str, LastReply] = field(default_factory=dict)
    terms: dict[tuple[str, str], int] = field(default_factory=dict)
    """By node and service: the term of the last report. A reply without one confirms nothing about a service."""
    lost: dict[str, str] = field(default_factory=dict)
    """By node: why its guard cannot be reached now."""
    over: threading.Event = field(default_factory=threading.Event)
    changed: Callable[[], None] = lambda: None
    """Called when the reports of a guard have changed."""
    began_s: float = field(default_factory=time.monotonic)
    idle_s: float = IDLE_S
    """Seconds between two exchanges without a swap."""
    due: dict[str, threading.Event] = field(default_factory=dict, init=False)
    """By node: set when its next exchange must not wait."""

    def __post_init__(self) -> None:
        self.due = {link.node: threading.Event() for link in self.links}

    def start(self) -> None:
        """Start one thread for each guard."""
        for link in self.links:
            threading.Thread(target=self._repeat, args=(link,), name=f"reach {link.node}", daemon=True).start()

    def _repeat(self, link: GuardLink) -> None:
        due = self.due[link.node]
        while not self.over.is_set():
            due.wait(PAUSE_S if self.busy() else self.idle_s)
            due.clear()
            if not self.over.is_set():
                self.exchange(link)

    def wake(self) -> None:
        """Exchange with every guard now: there are new orders."""
        for due in self.due.values():
            due.set()

    def exchange(self, link: GuardLink) -> None:
        """Send orders to one guard and store its reply."""
        known = self.last.get(link.node)
        boots = {service: report.boot for service, report in known.reports.items()} if known else {}
        try:
            reports = link.exchange(self.orders(link.node, boots))
        except (SparkopsError, OSError) as error:
            if link.node not in self.lost:
                self.log(f"{link.node}: its guard cannot be reached: {error}")
            self.lost[link.node] = str(error)
            return
        if self.lost.pop(link.node, None):
            self.log(f"{link.node}: its guard is reachable again")
        self.last[link.node] = LastReply(reports, link.progress, time.monotonic())
        self.terms |= {(link.node, service): report.term for service, report in reports.items()}
        if known is None or known.reports != reports:
            self.changed()

    def reports(self, service: str) -> dict[str, Report]:
        """Return the recent reports on a service, by node."""
        oldest_s = time.monotonic() - FRESH_S
        recent = {node: last.reports for node, last in tuple(self.last.items()) if last.at_s >= oldest_s}
        return {node: reports[service] for node, reports in recent.items() if service in reports}

    def contacts(self, service: str, term: int) -> frozenset[str]:
        """Return the nodes whose guards have reported a service, and know no newer leader of it than one of `term`."""
        known = tuple(self.terms.items())
        return frozenset(node for (node, name), newest in known if name == service and newest <= term)

    def progress(self, service: str) -> dict[str, Mapping[str, str]]:
        """Return how far the engines of a service are, by node."""
        return {node: last.progress.get(service, {}) for node, last in tuple(self.last.items())}

    def close(self) -> None:
        """End all exchanges."""
        self.over.set()
        self.wake()
