"""Read the model from requests to the one address whose body is larger than HAProxy's buffer.

HAProxy sends them through the Unix socket large.sock, with a PROXY header. OpenAI's clients send the model after the
messages, so a body is buffered up to its model, then sent to in.SERVICE. The memory of these buffers is bounded.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import disk
from disk import RUN
from named import ModelScanner
from relay import PART, REPLY_S, Departures, refuse, relay, streams
from replies import TOO_MANY, TOO_SLOW, answer, error, http, unavailable

MIB = 2**20
PROXY_HEADER = 16  # bytes of a PROXY header of version 2 before its addresses; the last two are the addresses' length
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
EXPECTS = re.compile(rb"\r\nexpect: *100-continue\r\n", re.IGNORECASE)
BODY_S = 60.0  # 32 MiB at 5 Mbit/s
MEMORY_S = 10.0
RETRY_S = 10


class Refusal(Exception):
    """The error reply to a request that is not forwarded."""


class Memory:
    """Memory for bodies in bytes, reserved in the order of the requests."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def lent(self, size: int) -> AsyncIterator[Callable[[], None]]:
        """Reserve `size` bytes. Yields a function that frees them early. Raises Refusal."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        self._lend()
        try:
            await asyncio.wait_for(turn, MEMORY_S)
        except TimeoutError:
            self._lend()
            raise Refusal(unavailable(TOO_MANY, RETRY_S)) from None
        taken = [size]

        def end() -> None:
            self._free += taken.pop() if taken else 0
            self._lend()

        try:
            yield end
        finally:
            end()

    def _lend(self) -> None:
        while self._queue and (self._queue[0][1].cancelled() or self._queue[0][0] <= self._free):
            size, turn = self._queue.popleft()
            if not turn.cancelled():
                self._free -= size
                turn.set_result(None)


class LargeRequests:
    """Requests with a large body. `memory_mib` bounds the memory of their buffers."""

    def __init__(self, memory_mib: int, departures: Departures) -> None:
        self._memory, self._departures = Memory(memory_mib * MIB), departures

    async def serve(self, connection: socket.socket) -> None:
        """Forward a request to the service of its model, or reply with an error."""
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with connection, suppress(OSError, EOFError), self._departures.watched(connection, end):
            async with streams(connection) as (reader, writer):
                try:
                    await self._pass_on(reader, writer, end)
                except Refusal as refusal:
                    await refuse(reader, writer, str(refusal))

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: asyncio.Future[bool]
    ) -> None:
        head = await asyncio.wait_for(_head(reader), REPLY_S)
        length = LENGTH.search(head)
        body = Body(reader, int(length[1]) if length else 0)
        async with self._memory.lent(body.remaining) as return_memory:
            if EXPECTS.search(head):
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            service = await _service(body)

            async def first(to: asyncio.StreamWriter) -> None:
                to.write(head)
                while body.parts:
                    to.write(body.parts.popleft())
                    await to.drain()
                return_memory()

            await relay(reader, writer, RUN / f"in.{service}", first=first, end=end)


class Body:
    """A body in transit: the buffered parts, and the number of remaining bytes."""

    def __init__(self, reader: asyncio.StreamReader, size: int) -> None:
        self.parts: deque[bytes] = deque()
        self.remaining = size
        self._reader = reader

    async def read(self) -> bytes:
        """Return the next part. Raises EOFError if the client disconnects before the end."""
        part = await self._reader.read(min(PART, self.remaining))
        if not part:
            raise EOFError
        self.remaining -= len(part)
        return part


async def _head(reader: asyncio.StreamReader) -> bytes:
    """Return PROXY header, request line and headers. Raises EOFError."""
    proxy = await reader.readexactly(PROXY_HEADER)
    proxy += await reader.readexactly(int.from_bytes(proxy[-2:], "big"))
    return proxy + await reader.readuntil(b"\r\n\r\n")


async def _service(body: Body) -> str:
    """Read the body up to its model and return the service of that name. Raises Refusal after the rest of the body."""
    scanner = ModelScanner()
    try:
        async with asyncio.timeout(BODY_S):
            while body.remaining and scanner.model is None:
                body.parts.append(await body.read())
                scanner.feed(body.parts[-1])
            if service := disk.rows(disk.read(disk.NAMES)).get(scanner.model or ""):
                return service
            body.parts.clear()
            while body.remaining:
                await body.read()
    except TimeoutError:
        raise Refusal(http(408, error(TOO_SLOW.format(BODY_S), "invalid_request_error", "request_timeout"))) from None
    raise Refusal(http(*answer("POST", "/no-model" if scanner.model is None else "/unknown-model")))
