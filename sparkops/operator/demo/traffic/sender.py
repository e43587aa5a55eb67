"""The process that sends requests, over an HTTP/1.1 client without retries: each failure becomes visible.

It writes a line for each request and ends by itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TextIO
from urllib.parse import urlsplit

from sparkops import foreign
from sparkops.operator.demo.traffic.report import STOPPED, RequestRecord, write


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


PATH = "/v1/chat/completions"
DONE = b"data: [DONE]"
ERROR = b'data: {"error":'
"""An error within a stream. vLLM sends [DONE] after it as well: chat_completion_stream_generator of 0.23.0."""
FLUSH_S = 0.05
MOST_OPEN = 100
"""Short requests at once. With the streams far below the 256 connections that the gateway takes from one address: a
busy gateway still counts connections that have ended on this side, and resets what exceeds its limit."""


@dataclass(frozen=True)
class TrafficSettings:
    """`rate` short requests a second and `streams` open streams, for `seconds` or `most` requests."""

    base_url: str
    model: str
    streams: int = 20
    rate: float = 200.0
    seconds: float = 600.0
    most: int = 500_000
    fresh: float = 0.5
    """Share of the requests that open a connection of their own."""
    stream_tokens: int = 100
    stream_pause_s: float = 0.0
    """Seconds between two streams of a client: on few cores, an engine does nothing else while it streams."""
    ask: str = "What is the capital of France?"
    expect: str = "Paris"
    """Text that a short answer must contain; empty: any."""
    timeout_s: float = 60.0
    drain_s: float = 30.0
    """Seconds that open requests may take after the end."""


@dataclass
class Sent:
    """An open request, and the fields of its record so far."""

    kind: Any
    fresh: bool
    start: float = field(default_factory=time.monotonic)
    outcome: dict[str, Any] = field(default_factory=dict)

    def record(self) -> RequestRecord:
        """Return the record of the ended request."""
        connection: Any = "fresh" if self.fresh else "kept"
        return RequestRecord(self.kind, connection, self.start, time.monotonic(), **self.outcome)

    def received(self, head: Head) -> None:
        """Note status and headers of the answer."""
        named = {"release": "x-sparkops-release", "stand_in": "x-stand-in", "retry_after": "retry-after"}
        self.outcome["status"] = head.status
        self.outcome |= {key: head.headers[name] for key, name in named.items() if name in head.headers}

    def failed(self, kind: str, detail: str) -> None:
        """Note why it failed."""
        self.outcome |= {"error": kind, "detail": detail[:200]}


class Sender:
    """Sends until it is told to stop."""

    def __init__(self, settings: TrafficSettings, key: str, out: TextIO) -> None:
        self.settings = settings
        self.target = ServerAddress.of(settings.base_url, key)
        self.pool = ConnectionPool(self.target)
        self.out = out
        self.sent = 0
        self.open: set[asyncio.Task[None]] = set()
        self.enough = asyncio.Event()

    async def run(self) -> None:
        """Send until the end, then let open requests finish."""
        loops = (self._shorts(), *(self._streams() for _ in range(self.settings.streams)))
        tasks = [asyncio.create_task(loop) for loop in loops]
        flushing = asyncio.create_task(self._flush())
        try:
            async with asyncio.timeout(self.settings.seconds):
                await self.enough.wait()
        except TimeoutError:
            self.enough.set()
        _, left = await asyncio.wait([*tasks, *self.open], timeout=self.settings.drain_s)
        for task in (*left, flushing):
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self.pool.close()
        self.out.flush()

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self.out.flush()

    async def _shorts(self) -> None:
        """Send at a steady rate, whatever the server does."""
        if not self.settings.rate:
            await self.enough.wait()
            return
        step_s, due = 1 / self.settings.rate, time.monotonic()
        while not self.enough.is_set():
            if len(self.open) < MOST_OPEN:
                self._begin(self._short(fresh=self._wants_fresh()))
            due = max(due + step_s, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self.open.add(task)
        task.add_done_callback(self.open.discard)

    async def _streams(self) -> None:
        """Keep one stream open."""
        while not self.enough.is_set():
            succeeded = await self._stream(fresh=self._wants_fresh())
            await asyncio.sleep(self.settings.stream_pause_s if succeeded else 0.1)

    def _wants_fresh(self) -> bool:
        self.sent += 1
        if self.sent >= self.settings.most:
            self.enough.set()
        return self.sent * self.settings.fresh % 1 < self.settings.fresh

    def _request(self, *, fresh: bool, **more: Any) -> bytes:
        messages = [{"role": "user", "content": self.settings.ask}]
        body = {"model": self.settings.model, "messages": messages, "temperature": 0, **more}
        return self.target.post(PATH, json.dumps(body).encode(), close=fresh)

    async def _short(self, *, fresh: bool) -> None:
        await self._exchange(Sent("short", fresh), self._request(fresh=fresh, max_tokens=16))

    async def _stream(self, *, fresh: bool) -> bool:
        prompt = f"Tell me about journey {self.sent} in a few sentences."
        more = {
            "max_tokens": self.settings.stream_tokens,
            "stream": True,
            "messages": [{"role": "user", "content": prompt}],
        }
        return await self._exchange(Sent("stream", fresh), self._request(fresh=fresh, **more))

    async def _exchange(self, sent: Sent, request: bytes) -> bool:
        """Send a request, read its answer and write its record. Return whether it succeeded."""
        connection: Connection | None = None
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                connection = await self.pool.take(fresh=sent.fresh)
                head = await connection.send(request)
                sent.received(head)
                await self._read(sent, connection, head)
        except Failed as failed:
            sent.failed(failed.kind, failed.detail)
        except TimeoutError:
            sent.failed("timeout", f"no whole answer in {self.settings.timeout_s:g} s")
        except asyncio.CancelledError:
            sent.failed(STOPPED, "")
        self._end(sent, connection)
        return "error" not in sent.outcome

    def _end(self, sent: Sent, connection: Connection | None) -> None:
        self.out.write(write(sent.record()))
        if connection is None:
            return
        if sent.fresh or sent.outcome.get("error") not in (None, "status", "wrong"):
            connection.close()
        else:
            self.pool.give(connection)

    async def _read(self, sent: Sent, connection: Connection, head: Head) -> None:
        if head.status != 200:
            body = await connection.body(head)
            sent.outcome["openai_error"] = is_openai_error(body)
            sent.failed("status", body.decode(errors="replace"))
        elif sent.kind == "stream":
            await self._read_stream(sent, connection, head)
        else:
            body = await connection.body(head)
            if self.settings.expect.encode() not in body:
                sent.failed("wrong", body.decode(errors="replace"))

    async def _read_stream(self, sent: Sent, connection: Connection, head: Head) -> None:
        pauses, tail, error = Pauses(sent.start), b"", b""
        try:
            async for part in connection.parts(head):
                pauses.part()
                if not error and ERROR in (seam := tail + part):
                    error = seam[seam.index(ERROR) :][:400]
                tail = (tail + part)[-64:]
        finally:
            sent.outcome |= {"first_s": round(pauses.first_s, 6), "pause_s": round(pauses.longest_s, 6)}
        if error:
            sent.failed("cut", f"the stream has an error: {error.decode(errors='replace')}")
        elif DONE not in tail:
            sent.failed("cut", f"the stream ended without [DONE], with {tail[-40:]!r}")


def is_openai_error(body: bytes) -> bool:
    """Return whether a body is an error as OpenAI's clients read it."""
    try:
        error = foreign.loads(body)["error"]
        return isinstance(error["message"], str) and isinstance(error["type"], str)
    except (ValueError, KeyError, TypeError):
        return False


async def work(settings: TrafficSettings, key: str) -> None:
    """Send until the end, or until stdin is closed: the traffic ends with the process that started it."""
    sender = Sender(settings, key, sys.stdout)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    watching = asyncio.create_task(reader.read())
    watching.add_done_callback(lambda _: sender.enough.set())
    await sender.run()
    watching.cancel()


def main() -> None:
    """Read the settings from the first line of stdin, and send."""
    given = json.loads(sys.stdin.readline())
    secret = given.pop("key")
    asyncio.run(work(TrafficSettings(**given), secret))


if __name__ == "__main__":
    main()
