"""Relay a request to HAProxy and its response back, or refuse it; detect clients that disconnect."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

PART = 65536
REPLY_S = 5.0


class Departures:
    """Sockets of clients that may disconnect. A disconnect is detected even while nothing reads from the socket."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ends: dict[int, asyncio.Future[bool]] = {}
        asyncio.get_running_loop().add_reader(self._epoll, self._notice)

    @contextmanager
    def watched(self, connection: socket.socket, end: asyncio.Future[bool]) -> Iterator[None]:
        """Set the result of `end` to False when the client disconnects."""
        number = connection.fileno()
        self._epoll.register(number, select.EPOLLRDHUP | select.EPOLLONESHOT)
        self._ends[number] = end
        try:
            yield
        finally:
            del self._ends[number]
            self._epoll.unregister(number)

    def _notice(self) -> None:
        for number, _ in self._epoll.poll(0):
            settle(self._ends[number], result=False)


def settle(end: asyncio.Future[bool], *, result: bool) -> None:
    """Set the result of a future, unless it has one."""
    if not end.done():
        end.set_result(result)


async def relay(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    to: Path,
    *,
    first: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None,
    end: asyncio.Future[bool] | None = None,
) -> None:
    """Copy in both directions until one side closes or `end` has a result. `first` sends what was already read."""
    to_reader, to_writer = await asyncio.open_unix_connection(to)

    async def request() -> None:
        with suppress(OSError):
            if first:
                await first(to_writer)
            await _pump(reader, to_writer)

    tasks = [asyncio.ensure_future(request()), asyncio.ensure_future(_pump(to_reader, writer))]
    try:
        await asyncio.wait([*tasks, *([end] if end else [])], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        to_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await reader.read(PART):
            writer.write(part)
            await writer.drain()


@asynccontextmanager
async def streams(connection: socket.socket) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield the streams of a connection, and close it at the end."""
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reply: str) -> None:
    """Send a reply and close. Reads the rest of the request first: unread data would reset the connection."""
    writer.write(reply.encode())
    writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(REPLY_S):
            while await reader.read(PART):
                pass
