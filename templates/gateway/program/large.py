"""Read the model from requests to the one address whose body is larger than HAProxy's buffer.

HAProxy sends them through the Unix socket large.sock, with a PROXY header. OpenAI's clients send the model after the
messages, so a body is buffered up to its model, then sent to in.SERVICE. The memory of these buffers is bounded.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

import disk
from disk import RUN
from named import ModelScanner
from relay import PART, REPLY_S, Departures, refuse, relay, settle, streams
from replies import TOO_MANY, TOO_SLOW, answer, error, http, unavailable

MIB = 2**20
PROXY_HEADER = 16  # bytes of a PROXY header of version 2 before its addresses; the last two are the addresses' length
CLIENT_BYTES = {1: 4, 2: 8}  # by family: an IPv4 address, and the network of an IPv6 address
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
EXPECTS = re.compile(rb"\r\nexpect: *100-continue\r\n", re.IGNORECASE)
BODY_S = 60.0  # 32 MiB at 5 Mbit/s
MEMORY_S = 10.0
RETRY_S = 10


class Refusal(Exception):
    """The error reply to a request that is not forwarded."""


@dataclass(eq=False)
class Share:
    """The memory of one body in bytes: what it has, and what it lacks to be complete."""

    client: bytes
    lacking: int
    held: int = 0


class Memory:
    """Memory for bodies in bytes, given as they arrive and shared by client.

    A client has at most as much as it leaves free, so there is room for others: for a body of a quarter of the memory
    beside a client that takes all it can. Of its own bodies one can always be completed with what it may have.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._shares: dict[bytes, list[Share]] = {}
        self._waiting: list[asyncio.Future[bool]] = []

    @contextmanager
    def lent(self, client: bytes, size: int) -> Iterator[Share]:
        """Yield the share of a body of `size` bytes, empty at first."""
        share = Share(client, size)
        self._shares.setdefault(client, []).append(share)
        try:
            yield share
        finally:
            self.give_back(share)
            self._shares[client].remove(share)
            if not self._shares[client]:
                del self._shares[client]

    async def take(self, share: Share, size: int) -> None:
        """Add `size` bytes to a share, as soon as there is room. Raises Refusal."""
        try:
            async with asyncio.timeout(MEMORY_S):
                while not self._allows(share, size):
                    turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                    self._waiting.append(turn)
                    await turn
        except TimeoutError:
            raise Refusal(unavailable(TOO_MANY, RETRY_S)) from None
        share.held += size
        share.lacking -= size
        self._free -= size

    def give_back(self, share: Share) -> None:
        """Free the memory of a body that is not kept any longer."""
        self._free += share.held
        share.held = 0
        self.complete(share)

    def complete(self, share: Share) -> None:
        """Note that a body needs no more memory."""
        share.lacking = 0
        for turn in self._waiting:
            settle(turn, result=True)
        self._waiting.clear()

    def _allows(self, share: Share, size: int) -> bool:
        """Whether a share may grow: the client's bodies can then still be completed, one after another (Dijkstra)."""
        others = [other for other in self._shares[share.client] if other is not share]
        held = sum(other.held for other in others) + share.held
        room = (held + self._free) // 2 - held - size
        after = [(share.lacking - size, share.held + size), *((other.lacking, other.held) for other in others)]
        for lacking, freed in sorted(after):
            if lacking > room:
                return False
            room += freed
        return True


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
        proxy, head = await asyncio.wait_for(_head(reader), REPLY_S)
        length = LENGTH.search(head)
        size = int(length[1]) if length else 0
        with self._memory.lent(client_of(proxy), size) as share:
            if EXPECTS.search(head):
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = Body(reader, size)
            service = await _service(body, partial(self._memory.take, share))
            self._memory.complete(share)

            async def first(to: asyncio.StreamWriter) -> None:
                to.write(proxy + head)
                while body.parts:
                    to.write(body.parts.popleft())
                    await to.drain()
                self._memory.give_back(share)

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


def client_of(proxy: bytes) -> bytes:
    """Return the source address in a PROXY header; of IPv6 the network, as one client has all addresses of it."""
    size = CLIENT_BYTES.get(proxy[13] >> 4, 0)
    return proxy[PROXY_HEADER : PROXY_HEADER + size]


async def _head(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the PROXY header, and request line and headers. Raises EOFError."""
    proxy = await reader.readexactly(PROXY_HEADER)
    proxy += await reader.readexactly(int.from_bytes(proxy[-2:], "big"))
    return proxy, await reader.readuntil(b"\r\n\r\n")


async def _service(body: Body, take: Callable[[int], Awaitable[None]]) -> str:
    """Read the body up to its model and return the service of that name. Raises Refusal after the rest of the body."""
    scanner = ModelScanner()
    try:
        async with asyncio.timeout(BODY_S):
            while body.remaining and scanner.model is None:
                part = await body.read()
                await take(len(part))
                body.parts.append(part)
                scanner.feed(part, last=not body.remaining)
            if service := disk.rows(disk.read(disk.NAMES)).get(scanner.model or ""):
                return service
            body.parts.clear()
            while body.remaining:
                await body.read()
    except TimeoutError:
        raise Refusal(http(408, error(TOO_SLOW.format(BODY_S), "invalid_request_error", "request_timeout"))) from None
    raise Refusal(http(*answer("POST", "/no-model" if scanner.model is None else "/unknown-model")))
