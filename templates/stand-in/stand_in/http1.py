"""The part of HTTP/1.1 that clients and gateways use: keep-alive, pipelining, chunked bodies both ways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple

MOST_HEAD = 64 * 1024
MOST_BODY = 64 * 1024 * 1024
JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
REASONS = {status.value: status.phrase for status in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BadRequest(Exception):
    """Bytes that are not an HTTP request."""


class Request(NamedTuple):
    """One request. Names of headers are in lower case; `keep`: whether the client keeps the connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep: bool
    version: str


def parse(buffer: bytearray) -> tuple[Request, int] | None:
    """Return the first request of a buffer and its length; None if it is incomplete. Raises BadRequest."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MOST_HEAD:
            raise BadRequest
        return None
    first, *lines = buffer[:end].decode("latin-1").split("\r\n")
    try:
        method, target, version = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
    except ValueError:
        raise BadRequest from None
    found = _body(buffer, end + 4, headers)
    if found is None:
        return None
    body, used = found
    said = headers.get("connection", "").lower()
    keep = "close" not in said if version == "HTTP/1.1" else "keep-alive" in said
    return Request(method, target.partition("?")[0], headers, body, keep, version), used


def _body(buffer: bytearray, at: int, headers: dict[str, str]) -> tuple[bytes, int] | None:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _chunked(buffer, at)
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdecimal() or int(length) > MOST_BODY:
        raise BadRequest
    end = at + int(length)
    return (bytes(buffer[at:end]), end) if len(buffer) >= end else None


def _chunked(buffer: bytearray, at: int) -> tuple[bytes, int] | None:
    body = bytearray()
    while (end := buffer.find(b"\r\n", at)) >= 0:
        try:
            size = int(buffer[at:end].partition(b";")[0], 16)
        except ValueError:
            raise BadRequest from None
        at = end + 2 + size + 2
        if len(buffer) < at:
            return None
        if not size:
            return bytes(body), at
        body += buffer[end + 2 : end + 2 + size]
    return None


class Server:
    """State of all connections. `handle` answers a request; `sent` is called after every answer."""

    def __init__(
        self,
        handle: Callable[[Request, Connection], Awaitable[None]],
        sent: Callable[[Connection, int, int, float], None],
        name: str | None,
    ) -> None:
        self.handle = handle
        self.sent = sent
        self.headers = "server: uvicorn\r\n" + (f"x-stand-in: {name}\r\n" if name else "")
        self.connections: set[Connection] = set()
        self.draining = False

    def drain(self) -> None:
        """Close idle connections; busy ones close after their answer."""
        self.draining = True
        for connection in tuple(self.connections):
            connection.close_if_idle()


class Connection(asyncio.Protocol):
    """One connection. Its requests are answered in order."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.request: Request | None = None
        self.began = self.size = 0.0
        self.status = 0
        self.continued = False

    def connection_made(self, transport: Any) -> None:
        """Add the connection of a client."""
        self.transport = transport
        self.peer = transport.get_extra_info("peername") or ("", 0)
        self.server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Remove the connection, and cancel its answer."""
        self.server.connections.discard(self)
        if self.task:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        self.buffer += data
        if self.task is None:
            self._next()

    def close_if_idle(self) -> None:
        """Close unless an answer is in progress."""
        if self.task is None:
            self.transport.close()

    def _next(self) -> None:
        try:
            found = parse(self.buffer)
        except BadRequest:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
            return
        if found is None:
            self._continue()
            return
        self.request, used = found
        del self.buffer[:used]
        self.continued = False
        self.began = time.monotonic()
        self.task = asyncio.get_running_loop().create_task(_run(self.server.handle, self.request, self))
        self.task.add_done_callback(self._done)

    def _continue(self) -> None:
        if not self.continued and b"100-continue" in self.buffer[:MOST_HEAD] and b"\r\n\r\n" in self.buffer:
            self.continued = True
            self.transport.write(CONTINUE)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.task = None
        if task.cancelled():
            self.transport.close()
            return
        if task.exception() or not self.keeps:
            self.transport.close()
            task.result()
        elif self.buffer:
            self._next()

    @property
    def keeps(self) -> bool:
        """Whether the connection stays open after this answer."""
        return bool(self.request and self.request.keep and not self.server.draining)

    def respond(self, status: int, body: bytes, kind: str = JSON, headers: str = "") -> None:
        """Send a complete answer."""
        self._head(status, kind, f"{headers}content-length: {len(body)}\r\n", body)
        self.server.sent(self, status, len(body), time.monotonic() - self.began)

    def begin(self, kind: str = EVENTS) -> None:
        """Send the headers of an answer in parts."""
        self.size, self.status = 0, 200
        self._head(200, kind, "transfer-encoding: chunked\r\n" if self._chunks else "", b"")

    def send(self, part: bytes) -> None:
        """Send a part."""
        self.size += len(part)
        self.transport.write(b"%x\r\n%b\r\n" % (len(part), part) if self._chunks else part)

    def end(self) -> None:
        """Send the end of an answer in parts."""
        if self._chunks:
            self.transport.write(b"0\r\n\r\n")
        else:
            self.transport.close()
        self.server.sent(self, self.status, int(self.size), time.monotonic() - self.began)

    @property
    def _chunks(self) -> bool:
        return self.request is None or self.request.version == "HTTP/1.1"

    def _head(self, status: int, kind: str, headers: str, body: bytes) -> None:
        closing = "" if self.keeps else "connection: close\r\n"
        common = f"HTTP/1.1 {status} {REASONS[status]}\r\n{self.server.headers}content-type: {kind}\r\n"
        self.transport.write(f"{common}{headers}{closing}\r\n".encode("latin-1") + body)


async def _run(handle: Callable[[Request, Connection], Awaitable[None]], request: Request, by: Connection) -> None:
    await handle(request, by)
