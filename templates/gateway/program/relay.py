"""Requests that HAProxy sends: who sent them, the way to HAProxy's current worker and back, refusals."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PART = 65536
REPLY_S = 5.0
PROXY_HEADER = 16  # bytes of a PROXY header of version 2 before its addresses; the last two are the addresses' length
CLIENT_BYTES = {1: 4, 2: 8}  # by family: an IPv4 address, and the network of an IPv6 address
MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address as one of IPv6, which a port for both kinds gets


class Refusal(Exception):
    """The error reply to a request that is not forwarded."""


@dataclass(eq=False)
class Arrival:
    """A request from HAProxy: its connection, its PROXY header, and a future with a result once its client has left."""

    connection: socket.socket
    proxy: bytes
    left: asyncio.Future[bool]

    @property
    def client(self) -> bytes:
        return client_of(self.proxy)


def client_of(proxy: bytes) -> bytes:
    """Return the source address in a PROXY header; of IPv6 the network, as one client has all addresses of it."""
    source = proxy[PROXY_HEADER : PROXY_HEADER + 16]
    if proxy[13] >> 4 == 2 and source.startswith(MAPPED):
        return source[len(MAPPED) :]
    return source[: CLIENT_BYTES.get(proxy[13] >> 4, 0)]


class Departures:
    """Sockets of clients that may disconnect. A disconnect is detected even while nothing reads from the socket."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ends: dict[int, asyncio.Future[bool]] = {}
        asyncio.get_running_loop().add_reader(self._epoll, self._notice)

    @contextmanager
    def watched(self, connection: socket.socket) -> Iterator[asyncio.Future[bool]]:
        """Yield a future that gets a result when the client disconnects."""
        number = connection.fileno()
        self._epoll.register(number, select.EPOLLRDHUP | select.EPOLLONESHOT)
        self._ends[number] = asyncio.get_running_loop().create_future()
        try:
            yield self._ends[number]
        finally:
            del self._ends[number]
            self._epoll.unregister(number)

    def _notice(self) -> None:
        for number, _ in self._epoll.poll(0):
            settle(self._ends[number], result=True)


def settle(end: asyncio.Future[bool], *, result: bool) -> None:
    """Set the result of a future, unless it has one."""
    if not end.done():
        end.set_result(result)


async def read(connection: socket.socket, size: int = PART) -> bytes:
    """Return the next bytes; empty at the end. Other connections have their turn in between."""
    part = await asyncio.get_running_loop().sock_recv(connection, size)
    await asyncio.sleep(0)
    return part


async def write(connection: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, data)


async def exactly(connection: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes. Raises EOFError."""
    data = b""
    while len(data) < size:
        if not (part := await read(connection, size - len(data))):
            raise EOFError
        data += part
    return data


async def proxy_header(connection: socket.socket) -> bytes:
    """Return the PROXY header of a connection. Raises EOFError, TimeoutError."""
    async with asyncio.timeout(REPLY_S):
        header = await exactly(connection, PROXY_HEADER)
        return header + await exactly(connection, int.from_bytes(header[-2:], "big"))


async def relay(arrival: Arrival, to: Path, first: Callable[[socket.socket], Awaitable[None]]) -> None:
    """Send a request, after what `first` sends, and copy its response back until its end or until the client leaves.

    The response counts also if the request cannot be written to its end: HAProxy may reply before it has read a body.
    """
    with socket.socket(socket.AF_UNIX) as behind:
        behind.setblocking(False)
        await asyncio.get_running_loop().sock_connect(behind, str(to))

        async def request() -> None:
            with suppress(OSError):
                await first(behind)
                await _pump(arrival.connection, behind)

        async def response() -> None:
            with suppress(OSError):
                await _pump(behind, arrival.connection)

        tasks = [asyncio.ensure_future(request()), asyncio.ensure_future(response())]
        try:
            await asyncio.wait([tasks[1], arrival.left], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    await _linger(arrival.connection)


async def _pump(source: socket.socket, to: socket.socket) -> None:
    while part := await read(source):
        await write(to, part)


async def refuse(connection: socket.socket, reply: str) -> None:
    """Send a reply, and read what still comes of the request."""
    await write(connection, reply.encode())
    await _linger(connection)


async def _linger(connection: socket.socket) -> None:
    """End a response, and read what still comes of its request: a close with unread data would reset the connection."""
    with suppress(OSError, TimeoutError):
        connection.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(REPLY_S):
            while await read(connection):
                pass
