"""The waiting room: requests of a service wait here while no release has the traffic, and a start is predicted.

HAProxy sends them by the Unix socket wait.SERVICE, with a PROXY header, and gets them back by in.SERVICE. A worker that
a reload has replaced keeps what waits, but takes no other servers: what it kept goes to the present worker. A Lua
action that sleeps needs no process, but HAProxy 2.6.12 crashed with 1,400 requests in one.
"""

from __future__ import annotations

import asyncio
import json
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import disk
from disk import RUN, Hold
from replies import FIGURES, UNAVAILABLE, answer, error, http, metrics

CONTROL = RUN / "room.sock"
METRICS = "/metrics/waiting"
ADMIN = RUN / "admin.sock"
POLL_S = 0.5  # `switch` and `hold` do not wait for it: a question makes the room read its files
ENDING_POLL_S, ENDING_S = 0.05, 30.0  # after a signal, which may be HAProxy's end; `docker stop` waits for less
ENDED = 20  # polls in a row without HAProxy, after a signal
REPLY_S = 5.0
PART = 65536
RETRY_S = 30
BACKLOG = 4096


def listen(file: Path) -> socket.socket:
    """A Unix socket in place of whatever an earlier process has left."""
    file.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(file))
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


@dataclass
class Waiting:
    """The requests of one service, by connection: when each came, and what ends its wait."""

    since_s: dict[socket.socket, float] = field(default_factory=dict)
    ends: dict[socket.socket, asyncio.Future[bool]] = field(default_factory=dict)
    refused: int = 0

    def figures(self, hold: Hold | None) -> dict[str, float]:
        """What `status` and the metrics show."""
        now_s = time.monotonic()
        longest_s = now_s - min(self.since_s.values(), default=now_s)
        limits = (hold["most"], hold["longest_s"], max(0.0, hold["until"] - time.time())) if hold else (0, 0.0, 0.0)
        return dict(zip(FIGURES, (len(self.since_s), round(longest_s, 1), self.refused, *limits), strict=True))


class Room:
    """Everything that waits. The files say for what."""

    def __init__(self) -> None:
        self.waiting: dict[str, Waiting] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.left = select.epoll()
        self.signalled_at = -ENDING_S

    async def run(self) -> None:
        """Serve until HAProxy ends. Its master sends SIGUSR1 at each reload too, which ends nothing here."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: setattr(self, "signalled_at", time.monotonic()))
        loop.add_reader(self.left, self._leave)
        await asyncio.start_unix_server(self._report, sock=listen(CONTROL))
        unseen = 0
        while unseen < ENDED:
            self._look()
            ending = time.monotonic() < self.signalled_at + ENDING_S
            await asyncio.sleep(ENDING_POLL_S if ending else POLL_S)
            unseen = unseen + 1 if ending and not _connects(ADMIN) else 0

    def _look(self) -> None:
        """Read the files. Whatever is not held any more goes on."""
        holds = disk.holds()
        for service in disk.services():
            if service not in self.waiting:
                self.waiting[service] = Waiting()
                self._spawn(self._accept(service, listen(RUN / f"wait.{service}")))
        for service in self.waiting.keys() - holds:
            for end in self.waiting[service].ends.values():
                _end(end, answered=True)

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine without a result
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _accept(self, service: str, listening: socket.socket) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            connection.setblocking(False)
            self._spawn(self._serve(service, connection))

    async def _serve(self, service: str, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            goes_on = await self._wait(service, connection)
            if goes_on:
                await _relay(connection, RUN / f"in.{service}")
            elif goes_on is None:
                self.waiting[service].refused += 1
                await _refuse(connection, self._left_s(service))

    @staticmethod
    def _left_s(service: str) -> float:
        hold = disk.hold(service)
        return hold["until"] - time.time() if hold else RETRY_S

    async def _wait(self, service: str, connection: socket.socket) -> bool | None:
        """Whether it goes on (True), has left (False), or gets no release (None)."""
        hold, waiting = disk.hold(service), self.waiting[service]
        if hold is None:
            return True
        if hold["until"] - time.time() > hold["longest_s"] or len(waiting.ends) >= hold["most"]:
            return None
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.since_s[connection], waiting.ends[connection] = time.monotonic(), end
        self.left.register(connection, select.EPOLLRDHUP)
        try:
            return await asyncio.wait_for(end, hold["longest_s"])
        except TimeoutError:
            return None
        finally:
            self.left.unregister(connection)
            del waiting.since_s[connection], waiting.ends[connection]

    def _leave(self) -> None:
        """Their clients have left."""
        gone = {number for number, _ in self.left.poll(0)}
        for waiting in self.waiting.values():
            for connection in [known for known in waiting.ends if known.fileno() in gone]:
                _end(waiting.ends[connection], answered=False)

    def figures(self) -> dict[str, dict[str, float]]:
        """The figures of every service."""
        return {service: waiting.figures(disk.hold(service)) for service, waiting in self.waiting.items()}

    def _reply(self, asked: list[str]) -> str:
        if not asked:
            self._look()
            return json.dumps(self.figures())
        if asked[1] == METRICS:
            return http(200, "".join(metrics(self.figures())), "text/plain; version=0.0.4")
        return http(*answer(asked[0], asked[1]))

    async def _report(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reply to HAProxy with metrics or models, to this program with the figures."""
        with suppress(OSError, ValueError, TimeoutError):
            asked = line = await asyncio.wait_for(reader.readline(), REPLY_S)
            left = 0
            while line.strip():
                line = await asyncio.wait_for(reader.readline(), REPLY_S)
                if line.lower().startswith(b"content-length:"):
                    left = int(line.partition(b":")[2])
            while left > 0 and (part := await asyncio.wait_for(reader.read(PART), REPLY_S)):
                left -= len(part)  # HAProxy ends a client's connection with the reply: the body must have come by then
            writer.write(self._reply(asked.decode().split()).encode())
            writer.write_eof()
            async with asyncio.timeout(REPLY_S):  # unread, a body would take the reply with it
                while await reader.read(PART):
                    pass
        writer.close()


def _connects(file: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trying:
        trying.settimeout(REPLY_S)
        return trying.connect_ex(str(file)) == 0


def _end(end: asyncio.Future[bool], *, answered: bool) -> None:
    if not end.done():
        end.set_result(answered)


async def _relay(connection: socket.socket, to: Path) -> None:
    """Pass everything on, until one side closes."""
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        to_reader, to_writer = await asyncio.open_unix_connection(to)
        pumps = [asyncio.ensure_future(_pump(reader, to_writer)), asyncio.ensure_future(_pump(to_reader, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        to_writer.close()
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await reader.read(PART):
            writer.write(part)
            await writer.drain()


async def _refuse(connection: socket.socket, left_s: float) -> None:
    """Reply 503. What the request still sends is read: unread, it would take the reply with it."""
    retry_s = max(1, round(left_s if left_s > 0 else RETRY_S))
    text = http(503, error(UNAVAILABLE, "server_error", "unavailable"), more=(f"Retry-After: {retry_s}",))
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, text.encode())
    connection.shutdown(socket.SHUT_WR)
    with suppress(TimeoutError):
        async with asyncio.timeout(REPLY_S):
            while await loop.sock_recv(connection, PART):
                pass


def ask() -> dict[str, dict[str, float]] | None:
    """The figures of the room that runs, which reads its files first; None where it does not answer."""
    with socket.socket(socket.AF_UNIX) as asking, suppress(OSError, ValueError):
        asking.settimeout(REPLY_S)
        asking.connect(str(CONTROL))
        asking.sendall(b"\n")
        figures: dict[str, dict[str, float]] = json.loads(b"".join(iter(lambda: asking.recv(PART), b"")))
        return figures
    return None


def serve() -> None:
    """Run the waiting room until the container stops."""
    try:
        asyncio.run(Room().run())
    except OSError as error:
        sys.exit(f"gateway: the waiting room has ended: {error}")
