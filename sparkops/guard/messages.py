"""Messages between guards: signature, envelope, body and challenges. Nothing is parsed before it is verified.

Every message answers the last challenge of its receiver, so none counts twice, on another node or in another order. A
node's key is derived from the fleet key: a node can sign nothing for another one.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from sparkops.errors import SparkopsError
from sparkops.swap import wire
from sparkops.swap.fleet_state import Report
from sparkops.swap.journal import SCHEMA
from sparkops.swap.orders import Order

MAX_BYTES = 4 * 2**20  # of a message
NODE_KEY = b"sparkops node key 1\n"
MESSAGE = b"sparkops message 1\n"
LINKS = 64  # the oldest challenge gives way; its link gets a new one and sends again
STALE = "the challenge is not the last one"  # a reply that brings the last one: the message is to be sent again


class MessageRefused(SparkopsError):
    """A message that is not signed with the key of its node, or not meant for its receiver."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is signed beside the body. `term` and `revision` are the highest of the orders; a reply repeats them."""

    direction: Literal["order", "report"]
    sender: str
    receiver: str
    term: int
    revision: int
    link: str
    """The leader's link: it has one challenge at a time, so that its messages cannot change their order."""
    answers: str
    """The receiver's last challenge; empty in the first message of a link."""
    challenge: str
    """The sender's challenge: the next message of the receiver must answer it."""
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Orders:
    """The body of a leader's message: by service, its order; None where only the report is wanted."""

    orders: Mapping[str, Order | None]

    @property
    def term(self) -> int:
        """The highest term of the orders; 0 without orders."""
        return max((order.journal.term for order in self.orders.values() if order), default=0)

    @property
    def revision(self) -> int:
        """The highest revision of the orders; 0 without orders."""
        return max((order.journal.revision for order in self.orders.values() if order), default=0)


@dataclass(frozen=True, slots=True)
class GuardReply:
    """The body of a guard's message: by service, its report and one line on each container that loads or is tested."""

    reports: Mapping[str, Report] = field(default_factory=dict)
    progress: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    problem: str = ""
    """Why there are no reports; empty if there are."""


@dataclass(frozen=True, slots=True)
class Message:
    """Verified orders and the node of the guard that sent them."""

    sender: str
    orders: Mapping[str, Order | None]


def derive(fleet_key: bytes, node: str) -> bytes:
    """Return the key that a node shares with its leader (32 bytes)."""
    return hmac.digest(fleet_key, NODE_KEY + node.encode(), "sha256")


def sign(key: bytes, content: bytes) -> bytes:
    """Return the signature of a message's envelope and body (64 hexadecimal digits)."""
    return hmac.digest(key, MESSAGE + content, "sha256").hex().encode()


def pack(key: bytes, envelope: Envelope, body: bytes) -> bytes:
    """Write a message as three lines: signature, envelope, body. Raises MessageRefused for one that is too large."""
    content = wire.dump(Envelope, envelope) + b"\n" + body
    packed = sign(key, content) + b"\n" + content
    if len(packed) > MAX_BYTES:
        raise MessageRefused(f"message to {envelope.receiver}: {len(packed)} bytes, expected up to {MAX_BYTES}")
    return packed


def verify(key: bytes, packed: bytes) -> bytes:
    """Return envelope and body of a message, in constant time. Raises MessageRefused if its signature is another."""
    signature, _, content = packed.partition(b"\n")
    if not hmac.compare_digest(signature, sign(key, content)):
        raise MessageRefused("message refused: its signature does not match the key of this node")
    return content


def verify_any(keys: Mapping[str, bytes], packed: bytes) -> tuple[str, bytes]:
    """Return whose key has signed a message, and its content. Raises MessageRefused if none has."""
    for sender, key in keys.items():
        with suppress(MessageRefused):
            return sender, verify(key, packed)
    raise MessageRefused("message refused: its signature matches no key of this node")


def unpack(content: bytes) -> tuple[Envelope, bytes]:
    """Parse verified content. Returns the envelope and the body. Raises WireError."""
    envelope, _, body = content.partition(b"\n")
    return wire.load(Envelope, envelope), body


def require(envelope: Envelope, **expected: str | int) -> None:
    """Raise MessageRefused unless the envelope has these values."""
    for name, value in expected.items():
        if (actual := getattr(envelope, name)) != value:
            raise MessageRefused(f"message refused: {name} is {actual!r}, expected {value!r}")


def read_orders(envelope: Envelope, body: bytes) -> Message:
    """Parse verified orders. Raises WireError, and MessageRefused if the envelope names another term or revision."""
    orders = wire.load(Orders, body)
    require(envelope, term=orders.term, revision=orders.revision)
    return Message(envelope.sender, orders.orders)


class Challenges:
    """The challenges that a guard has issued: one for each link, valid once, in memory only. Thread-safe."""

    def __init__(self) -> None:
        self._by_link: dict[str, str] = {}
        self._lock = threading.Lock()

    def use(self, link: str, answer: str) -> bool:
        """Return whether `answer` is the last challenge of the link, which then is no longer valid."""
        with self._lock:
            valid = link in self._by_link and hmac.compare_digest(self._by_link[link].encode(), answer.encode())
            if valid:
                del self._by_link[link]
            return valid

    def current(self, link: str) -> str:
        """Return the open challenge of a link; a new one without any."""
        with self._lock:
            challenge = self._by_link.setdefault(link, secrets.token_hex(16))
            if len(self._by_link) > LINKS:
                del self._by_link[next(iter(self._by_link))]
            return challenge
