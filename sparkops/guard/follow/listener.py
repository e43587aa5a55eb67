"""Servers for other machines: HTTP, few threads, short deadlines. That for the leader's messages is here.

Slow connections keep nobody out: one that has not sent its request gives way to the next one, and one of the leader's
addresses to none from elsewhere. Other addresses are served too, after them: the leader before a rebuild, which must
receive the newer term, may have any.
"""

from __future__ import annotations

import errno
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from typing import Any, Self

from sparkops.errors import SparkopsError
from sparkops.guard import messages
from sparkops.guard.bounded import Bounded
from sparkops.guard.environment import log
from sparkops.guard.messages import MAX_BYTES, Challenges, Envelope, GuardReply, Message, MessageRefused
from sparkops.swap import wire
from sparkops.swap.wire import WireError

PATH = "/orders"
THREADS = 8
PER_ADDRESS = 4
"""Connections of one address: a leader needs one, and one that it has given up may still be open."""
HEAD_S, DEADLINE_S = 2.0, 10.0  # for the headers, and of a connection in all
GIVE_WAY_S = 1.0  # longest wait for the thread of a connection that was closed
RETRY_S = 1.0  # between two attempts to bind an address that is absent
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # no interface has the address; a kernel without IPv6
HEAD_BYTES = 2**16  # for the request line and the headers
QUIET_S, MOST_LOGGED = 60.0, 64
"""A lost connection is logged once per address in these seconds, of this number of addresses: one stranger may reset
hundreds a second, and the log that Docker keeps is limited."""


@dataclass(frozen=True)
class Receiver:
    """A guard's end of its leader's links. `keys`: by leader, the key of its messages; none before it has a fleet."""

    node: str
    keys: Callable[[], Mapping[str, bytes]]
    answer: Callable[[Message], GuardReply]
    challenges: Challenges = field(default_factory=Challenges)

    def receive(self, packed: bytes) -> tuple[HTTPStatus, bytes]:
        """Return the status and the signed reply to a message; no reply to one that is not signed for this node."""
        keys = self.keys()
        if not keys:
            return HTTPStatus.SERVICE_UNAVAILABLE, b""
        try:
            sender, content = messages.verify_any(keys, packed)
            envelope, body = messages.unpack(content)
            messages.require(envelope, direction="order", receiver=self.node, sender=sender)
        except MessageRefused:
            return HTTPStatus.FORBIDDEN, b""
        except WireError:
            return HTTPStatus.BAD_REQUEST, b""
        status, reply = self._reply(envelope, body)
        return status, messages.pack(keys[sender], self._returned(envelope), wire.dump(GuardReply, reply))

    def _reply(self, envelope: Envelope, body: bytes) -> tuple[HTTPStatus, GuardReply]:
        if not self.challenges.use(envelope.link, envelope.answers):
            return HTTPStatus.CONFLICT, GuardReply(problem=messages.STALE)
        try:
            return HTTPStatus.OK, self.answer(messages.read_orders(envelope, body))
        except (SparkopsError, OSError) as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, GuardReply(problem=str(error))

    def _returned(self, envelope: Envelope) -> Envelope:
        """Return the envelope of the reply, with the challenge for the link's next message."""
        return replace(
            envelope,
            direction="report",
            sender=self.node,
            receiver=envelope.sender,
            answers=envelope.challenge,
            challenge=self.challenges.current(envelope.link),
        )


@dataclass(eq=False)
class Caller:
    """One connection. `known`: from the leader's node; `sent`: its request is complete; `closed`: it gave way."""

    connection: socket.socket
    address: str
    known: bool
    sent: bool = False
    closed: bool = False


@dataclass
class Connections:
    """The connections that are served at once, by all listeners. `known` returns the addresses of the leader."""

    known: Callable[[], Collection[str]]
    most: int = THREADS
    per_address: int = PER_ADDRESS
    callers: list[Caller] = field(default_factory=list)
    """In the order in which they came."""
    left: threading.Condition = field(default_factory=threading.Condition)
    clock: Callable[[], float] = time.monotonic
    logged_s: dict[str, float] = field(default_factory=dict, init=False)
    """By address: when the loss of one of its connections was logged last."""

    def logs(self, caller: Caller) -> bool:
        """Return whether the loss of a connection is worth a line; not of one that gave way."""
        with self.left:
            now_s = self.clock()
            self.logged_s = {address: at_s for address, at_s in self.logged_s.items() if now_s - at_s < QUIET_S}
            if caller.closed or caller.address in self.logged_s or len(self.logged_s) >= MOST_LOGGED:
                return False
            self.logged_s[caller.address] = now_s
            return True

    def enter(self, connection: socket.socket, address: str) -> Caller | None:
        """Let a connection in, in place of one that has not sent its request if need be; None if there is none.

        Of an address with `per_address` connections its own oldest one gives way, else the oldest one from elsewhere
        than the leader. A connection from elsewhere never takes the place of one of the leader's.
        """
        address = address.partition("%")[0]
        caller = Caller(connection, address, _is_one_of(address, self.known()))
        with self.left:
            full = self._at_its_limit(address) or (self.callers if len(self.callers) >= self.most else ())
            if full and not self._gives_way(full, caller):
                return None
            self.callers.append(caller)
            return caller

    def _at_its_limit(self, address: str) -> Collection[Caller]:
        same = [caller for caller in self.callers if caller.address == address]
        return same if len(same) >= self.per_address else ()

    def _gives_way(self, callers: Collection[Caller], new: Caller) -> bool:
        """Close a connection among these, and wait until its thread has ended; False if none may be closed."""
        waiting = [
            caller for caller in callers if not (caller.sent or caller.closed) and (new.known or not caller.known)
        ]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda caller: caller.known)  # the first of those from elsewhere
        oldest.closed = True
        with suppress(OSError):  # its client has closed it
            oldest.connection.shutdown(socket.SHUT_RDWR)
        return self.left.wait_for(lambda: oldest not in self.callers, GIVE_WAY_S)

    def leave(self, caller: Caller) -> None:
        """Note that the thread of a connection ends."""
        with self.left:
            self.callers.remove(caller)
            self.left.notify_all()


def _is_one_of(address: str, known: Collection[str]) -> bool:
    return ip_address(address) in {ip_address(item) for item in known}


class _Exchange(BaseHTTPRequestHandler):
    server_version, sys_version = "sparkops", ""

    def __init__(self, receiver: Receiver, caller: Caller, *args: Any) -> None:
        self.receiver, self.caller = receiver, caller
        super().__init__(*args)

    def do_POST(self) -> None:
        bounded: Any = self.connection
        bounded.deadline_s += DEADLINE_S - HEAD_S
        length = self.headers.get("Content-Length", "")
        if self.path != PATH or not length.isdecimal():
            self._send(HTTPStatus.NOT_FOUND)
        elif len(length) > len(str(MAX_BYTES)) or int(length) > MAX_BYTES:
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif len(packed := self.rfile.read(int(length))) == int(length):
            self.caller.sent = True
            self._send(*self.receiver.receive(packed))

    def _send(self, status: HTTPStatus, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing: a message comes every second, and its sender reports what was refused."""


Exchange = Callable[[socket.socket, Caller, socketserver.BaseServer], None]
"""Serves one connection, within bounds of its own."""


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 32
    timeout = 0.2  # seconds that handle_request waits: the end of a listener takes as long

    def __init__(self, family: socket.AddressFamily, address: Any, exchange: Exchange, room: Connections):
        self.address_family, self.exchange, self.room = family, exchange, room
        super().__init__(address, socketserver.BaseRequestHandler)

    def server_bind(self) -> None:
        """Bind IPv6 and IPv4 apart, so that an address means one of them."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection that gets a place, and close it otherwise."""
        caller = self.room.enter(request, client_address[0])
        if caller is None:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, caller)
        except RuntimeError as error:  # no thread could be started
            self.room.leave(caller)
            self.shutdown_request(request)
            if self.room.logs(caller):
                log(f"connection from {caller.address} closed: {error}")

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve in a thread. From here on, `client_address` is the place that the connection got."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.leave(client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        self.exchange(request, client_address, self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a lost connection in a line, a defect with its traceback."""
        if isinstance(error := sys.exception(), OSError):
            if not isinstance(client_address, Caller) or self.room.logs(client_address):
                log(f"connection from {getattr(client_address, 'address', client_address)} lost: {error}")
        else:
            super().handle_error(request, client_address)


class _Listener:
    """Listens on one address, and on one that this node does not have yet as soon as it has it."""

    def __init__(self, family: socket.AddressFamily, address: Any, exchange: Exchange, room: Connections):
        self._make: Callable[[], _Server] = lambda: _Server(family, address, exchange, room)
        self.shown = f"{address[0]} port {address[1]}"
        self.server: _Server | None = None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"listen on {self.shown}", daemon=True)

    def __enter__(self) -> Self:
        """Bind. Raises OSError, unless the address may still come."""
        if error := self._bind():
            if error.errno not in ABSENT:
                raise error
            log(f"not listening on {self.shown}: {error.strerror}; retrying every {RETRY_S:g} s")
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close. Connections that were accepted end by themselves."""
        self.over.set()
        self.thread.join()

    def _bind(self) -> OSError | None:
        try:
            self.server = self._make()
        except OSError as error:
            return error
        return None

    def _run(self) -> None:
        while self.server is None and not self.over.wait(RETRY_S):
            if self._bind() is None:
                log(f"listening on {self.shown}")
        if self.server is None:
            return
        with self.server:
            while not self.over.is_set():
                self.server.handle_request()


@contextmanager
def serve(
    address: str,
    port: int,
    node: str,
    keys: Callable[[], Mapping[str, bytes]],
    answer: Callable[[Message], GuardReply],
    known: Callable[[], Collection[str]] = tuple,
) -> Iterator[int]:
    """Receive messages for `node` while the context lasts, on every IPv4 and IPv6 address that `address` names.

    An empty address means all of this machine. Yields the port. An address that this machine does not have, as before
    its interface is up, is tried again every RETRY_S. `known` returns the addresses of the leader, as far as they are
    known. Raises OSError where a port is taken.
    """
    receiver = Receiver(node, keys, answer)

    def exchange(connection: socket.socket, caller: Caller, server: socketserver.BaseServer) -> None:
        bounded: Any = Bounded(connection, HEAD_S, MAX_BYTES + HEAD_BYTES)
        _Exchange(receiver, caller, bounded, caller.address, server)

    with listen(address, port, exchange, Connections(known)) as bound:
        yield bound


@contextmanager
def listen(address: str, port: int, exchange: Exchange, room: Connections) -> Iterator[int]:
    """Serve each connection that finds `room` by `exchange` in a thread, while the context lasts. As `serve` else."""
    resolved = socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound = dict.fromkeys((family, bound) for family, _, _, _, bound in resolved)
    with ExitStack() as stack:
        listeners = [stack.enter_context(_Listener(family, address, exchange, room)) for family, address in bound]
        yield next((listener.server.server_address[1] for listener in listeners if listener.server), port)
