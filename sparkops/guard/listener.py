"""The server for the leader's messages: HTTP, few threads, one deadline, nothing parsed before it is verified."""

from __future__ import annotations

import errno
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from sparkops.errors import SparkopsError
from sparkops.guard import messages
from sparkops.guard.bounded import Bounded
from sparkops.guard.environment import log
from sparkops.guard.messages import MAX_BYTES, Challenges, Envelope, GuardReply, Message, MessageRefused
from sparkops.swap import wire
from sparkops.swap.values import WireError

PATH = "/orders"
THREADS = 8
DEADLINE_S = 10.0  # of a connection in all
RETRY_S = 1.0  # between two attempts to bind an address that is absent
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # no interface has the address; a kernel without IPv6
HEAD_BYTES = 2**16  # for the request line and the headers


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


class _Exchange(BaseHTTPRequestHandler):
    server_version, sys_version = "sparkops", ""

    def __init__(self, receiver: Receiver, *args: Any) -> None:
        self.receiver = receiver
        super().__init__(*args)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != PATH or not length.isdecimal():
            self._send(HTTPStatus.NOT_FOUND)
        elif len(length) > len(str(MAX_BYTES)) or int(length) > MAX_BYTES:
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif len(packed := self.rfile.read(int(length))) == int(length):
            self._send(*self.receiver.receive(packed))

    def _send(self, status: HTTPStatus, content: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing: a message comes every second, and its sender reports what was refused."""


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 32
    timeout = 0.2  # seconds that handle_request waits: the end of a listener takes as long

    def __init__(self, family: socket.AddressFamily, address: Any, receiver: Receiver, free: threading.Semaphore):
        self.address_family, self.receiver, self.free = family, receiver, free
        super().__init__(address, socketserver.BaseRequestHandler)

    def server_bind(self) -> None:
        """Bind IPv6 and IPv4 apart, so that an address means one of them."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread once fewer than THREADS run; meanwhile connections wait in the kernel."""
        self.free.acquire()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self.free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve one connection within its bounds."""
        bounded: Any = Bounded(request, DEADLINE_S, MAX_BYTES + HEAD_BYTES)
        _Exchange(self.receiver, bounded, client_address, self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a lost connection in a line, a defect with its traceback."""
        if isinstance(error := sys.exception(), OSError):
            log(f"connection from {client_address[0]} lost: {error}")
        else:
            super().handle_error(request, client_address)


class _Listener:
    """Listens on one address, and on one that this node does not have yet as soon as it has it."""

    def __init__(self, family: socket.AddressFamily, address: Any, receiver: Receiver, free: threading.Semaphore):
        self._make: Callable[[], _Server] = lambda: _Server(family, address, receiver, free)
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
    address: str, port: int, node: str, keys: Callable[[], Mapping[str, bytes]], answer: Callable[[Message], GuardReply]
) -> Iterator[int]:
    """Receive messages for `node` while the context lasts, on every IPv4 and IPv6 address that `address` names.

    An empty address means all of this machine. Yields the port. An address that this machine does not have, as before
    its interface is up, is tried again every RETRY_S. Raises OSError where a port is taken.
    """
    receiver, free = Receiver(node, keys, answer), threading.Semaphore(THREADS)
    resolved = socket.getaddrinfo(address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound = dict.fromkeys((family, bound) for family, _, _, _, bound in resolved)
    with ExitStack() as stack:
        listeners = [stack.enter_context(_Listener(family, address, receiver, free)) for family, address in bound]
        yield next((listener.server.server_address[1] for listener in listeners if listener.server), port)
