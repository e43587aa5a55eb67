"""A small HTTP/1.1 client without retries: each failure of a request becomes visible."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit


class Failed(Exception):
    """A request that failed. `kind` is one of the errors of a record."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True)
class Head:
    """Status and headers of an answer; names in lower case."""

    status: int
    headers: dict[str, str]


class Connection:
    """One TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.reusable = True

    @classmethod
    async def open(cls, host: str, port: int) -> Self:
        """Connect. Raises Failed."""
        try:
            return cls(*await asyncio.open_connection(host, port))
        except OSError as error:
            raise Failed("refused" if isinstance(error, ConnectionRefusedError) else "reset", str(error)) from None

    @property
    def gone(self) -> bool:
        """Whether the server has closed it."""
        return not self.reusable or self.reader.at_eof() or self.writer.is_closing()

    def close(self) -> None:
        """Close without waiting."""
        self.reusable = False
        self.writer.close()

    async def send(self, request: bytes) -> Head:
        """Send a request and read the head of its answer. Raises Failed."""
        try:
            self.writer.write(request)
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            raise Failed("cut" if error.partial else "closed", "the connection ended before an answer") from None
        except OSError as error:
            raise Failed("reset", str(error)) from None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self.reusable = "close" not in headers.get("connection", "").lower()
        return Head(int(first.split(" ", 2)[1]), headers)

    async def parts(self, head: Head) -> AsyncIterator[bytes]:
        """Yield the body of an answer in parts, as it arrives. Raises Failed when it is cut."""
        try:
            if "chunked" in head.headers.get("transfer-encoding", ""):
                async for part in self._chunks():
                    yield part
            elif length := int(head.headers.get("content-length", "0")):
                yield await self.reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise Failed("cut", "the connection ended inside an answer") from None
        except OSError as error:
            raise Failed("cut", str(error)) from None

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def body(self, head: Head) -> bytes:
        """Return the whole body of an answer. Raises Failed."""
        return b"".join([part async for part in self.parts(head)])


@dataclass(frozen=True)
class ServerAddress:
    """The address of requests: the base URL of a service, such as http://127.0.0.1:8000."""

    host: str
    port: int
    prefix: str
    key: str = ""

    @classmethod
    def of(cls, base_url: str, key: str) -> Self:
        """Parse a URL."""
        url = urlsplit(base_url)
        return cls(url.hostname or "", url.port or 80, url.path.rstrip("/").removesuffix("/v1"), key)

    def post(self, path: str, body: bytes, *, close: bool) -> bytes:
        """Return a request as bytes."""
        lines = (
            f"POST {self.prefix}{path} HTTP/1.1",
            f"host: {self.host}:{self.port}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            *([f"authorization: Bearer {self.key}"] if self.key else []),
            *(["connection: close"] if close else []),
        )
        return "\r\n".join((*lines, "", "")).encode("latin-1") + body


class ConnectionPool:
    """Connections that are kept open between requests."""

    def __init__(self, target: ServerAddress) -> None:
        self.target = target
        self.idle: list[Connection] = []

    async def take(self, *, fresh: bool) -> Connection:
        """Return an idle connection; a new one if `fresh` or if none is idle. Raises Failed."""
        while self.idle and not fresh:
            if not (kept := self.idle.pop()).gone:
                return kept
            kept.close()
        return await Connection.open(self.target.host, self.target.port)

    def give(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end."""
        if connection.gone:
            connection.close()
        else:
            self.idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self.idle:
            connection.close()


@dataclass
class Pauses:
    """Times of the parts of a stream."""

    start: float
    first_s: float = 0.0
    longest_s: float = 0.0
    last: float = 0.0

    def part(self) -> None:
        """Note the arrival of a part."""
        now = time.monotonic()
        if not self.last:
            self.first_s = now - self.start
        else:
            self.longest_s = max(self.longest_s, now - self.last)
        self.last = now
