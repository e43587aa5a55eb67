"""Read the model from requests to the one address whose body is larger than HAProxy's buffer.

HAProxy sends them through the Unix socket large.sock, with a PROXY header. OpenAI's clients send the model after the
messages, so a body is buffered up to its model, then sent to in.SERVICE. The memory of these buffers is bounded, and
that of requests that wait is theirs: services that serve do not lack it.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakValueDictionary

import disk
from disk import RUN
from memory import RETRY_S, Memory
from named import ModelScanner
from relay import PART, REPLY_S, Arrival, Refusal, read, relay, write
from replies import TOO_MANY, TOO_SLOW, answer, error, http, unavailable
from waiting import Waits

MIB = 2**20
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
EXPECTS = re.compile(rb"\r\nexpect: *100-continue\r\n", re.IGNORECASE)
BODY_S = 60.0  # 32 MiB at 5 Mbit/s
MOST = 256
"""Requests of one client that have not waited: HAProxy counts none that is with the waiting room (access.cfg.j2)."""


class LargeRequests:
    """Requests with a large body. `memory_mib` bounds the memory of their buffers."""

    def __init__(self, memory_mib: int, waits: Waits) -> None:
        self._memory, self._waits = Memory(memory_mib * MIB), waits
        self._turns: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def serve(self, arrival: Arrival) -> None:
        """Forward a request to the service of its model. Raises Refusal, EOFError."""
        if self._memory.count(arrival.client) >= MOST:
            raise Refusal(unavailable(TOO_MANY, RETRY_S))
        with self._memory.lent(arrival.client) as share, self._waits.memory.lent(arrival.client) as place:
            head, early = await _head(arrival.connection)
            length = LENGTH.search(head)
            size = share.lacking = int(length[1]) if length else 0
            if EXPECTS.search(head):
                await write(arrival.connection, b"HTTP/1.1 100 Continue\r\n\r\n")
            body = Body(arrival.connection, size, early)
            service = await self._service(body, arrival.client, partial(self._memory.take, share))
            self._memory.complete(share)
            await self._waits.wait(service, arrival, place, share.held, partial(self._memory.end, share))

            async def first(to: socket.socket) -> None:
                await write(to, arrival.proxy + head)
                while body.parts:
                    await write(to, body.parts.popleft())
                self._memory.give_back(share)
                self._waits.memory.give_back(place)

            await relay(arrival, RUN / f"in.{service}", first)

    async def _service(self, body: Body, client: bytes, take: Callable[[int], Awaitable[None]]) -> str:
        """Read the body up to its model and return the service of that name. Raises Refusal after the rest of it.

        Clients take turns: of one client, however many connections it has, one part is scanned in a turn of the loop.
        """
        scanner, turn = ModelScanner(), self._turns.setdefault(client, asyncio.Lock())
        try:
            async with asyncio.timeout(BODY_S):
                while body.remaining and scanner.model is None:
                    part = await body.read()
                    await take(len(part))
                    body.parts.append(part)
                    async with turn:
                        scanner.feed(part, last=not body.remaining)
                        await asyncio.sleep(0)
                if service := disk.rows(disk.read(disk.NAMES)).get(scanner.model or ""):
                    return service
                body.parts.clear()
                while body.remaining:
                    await body.read()
        except TimeoutError:
            slow = error(TOO_SLOW.format(BODY_S), "invalid_request_error", "request_timeout")
            raise Refusal(http(408, slow)) from None
        raise Refusal(http(*answer("POST", "/no-model" if scanner.model is None else "/unknown-model")))


class Body:
    """A body in transit: the buffered parts, and the number of remaining bytes. `early` came with the headers."""

    def __init__(self, connection: socket.socket, size: int, early: bytes) -> None:
        self.parts: deque[bytes] = deque()
        self.remaining = size
        self._connection, self._early = connection, early

    async def read(self) -> bytes:
        """Return the next part. Raises EOFError if the client disconnects before the end."""
        part, self._early = self._early or await read(self._connection, min(PART, self.remaining)), b""
        if not part:
            raise EOFError
        self.remaining -= len(part)
        return part


async def _head(connection: socket.socket) -> tuple[bytes, bytes]:
    """Return request line and headers, and what came of the body. HAProxy bounds their length. Raises EOFError."""
    data = b""
    async with asyncio.timeout(REPLY_S):
        while b"\r\n\r\n" not in data:
            if not (part := await read(connection)):
                raise EOFError
            data += part
    head, end, early = data.partition(b"\r\n\r\n")
    return head + end, early
