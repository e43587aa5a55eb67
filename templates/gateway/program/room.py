"""The waiting room: holds requests of a service while no release is active and a start is predicted.

HAProxy sends them through the Unix socket wait.SERVICE, with a PROXY header, and gets them back through in.SERVICE.
An old worker of HAProxy cannot use new servers after a reload, so its requests return to the current worker. A Lua
action that sleeps would need no process, but HAProxy 2.6.12 crashed with 1,400 requests in one.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import disk
from disk import RUN, Hold
from haproxy import ADMIN, ROOM
from large import LargeRequests
from relay import PART, REPLY_S, Departures, refuse, relay, settle, streams
from replies import FIGURES, UNAVAILABLE, answer, http, metrics, unavailable

LARGE = RUN / "large.sock"
METRICS = "/metrics/waiting"
POLL_S = 0.5  # `switch` and `hold` do not wait for it: a request for figures reads the files too
ENDING_POLL_S, ENDING_S = 0.05, 30.0  # after a signal, which may mean HAProxy's end; longer than `docker stop` waits
ENDED = 20  # consecutive polls without HAProxy, after a signal
RETRY_S = 30
BACKLOG = 4096


def listen(file: Path) -> socket.socket:
    """Return a listening Unix socket, in place of one that an earlier process left."""
    file.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(file))
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


@dataclass
class Waiting:
    """The waiting requests of one service, by connection: their arrival, and a future that ends the wait."""

    since_s: dict[socket.socket, float] = field(default_factory=dict)
    ends: dict[socket.socket, asyncio.Future[bool]] = field(default_factory=dict)
    refused: int = 0

    def figures(self, hold: Hold | None) -> dict[str, float]:
        """Return the values of FIGURES."""
        now_s = time.monotonic()
        longest_s = now_s - min(self.since_s.values(), default=now_s)
        limits = (hold["most"], hold["longest_s"], max(0.0, hold["until"] - time.time())) if hold else (0, 0.0, 0.0)
        return dict(zip(FIGURES, (len(self.since_s), round(longest_s, 1), self.refused, *limits), strict=True))


class Room:
    """The waiting requests of all services. The holds are in files."""

    def __init__(self, large_mib: int) -> None:
        self.waiting: dict[str, Waiting] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.departures = Departures()
        self.large = LargeRequests(large_mib, self.departures)
        self.signalled_at = -ENDING_S

    async def run(self) -> None:
        """Serve until HAProxy ends. Its master sends SIGUSR1 at its end, but also at each reload."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, lambda: setattr(self, "signalled_at", time.monotonic()))
        await asyncio.start_unix_server(self._report, sock=listen(ROOM))
        self._spawn(self._accept(listen(LARGE), self.large.serve))
        unseen = 0
        while unseen < ENDED:
            self._look()
            ending = time.monotonic() < self.signalled_at + ENDING_S
            await asyncio.sleep(ENDING_POLL_S if ending else POLL_S)
            unseen = unseen + 1 if ending and not _connects(ADMIN) else 0

    def _look(self) -> None:
        """Read the files. Release the requests of services whose hold has ended."""
        holds = disk.holds()
        for service in disk.services():
            if service not in self.waiting:
                self.waiting[service] = Waiting()
                self._spawn(self._accept(listen(RUN / f"wait.{service}"), partial(self._serve, service)))
        for service in self.waiting.keys() - holds:
            for end in self.waiting[service].ends.values():
                settle(end, result=True)

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine without a result
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _accept(self, listening: socket.socket, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            connection.setblocking(False)
            self._spawn(serve(connection))

    async def _serve(self, service: str, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            proceeds = await self._wait(service, connection)
            if proceeds is None:
                self.waiting[service].refused += 1
            async with streams(connection) as (reader, writer):
                if proceeds:
                    await relay(reader, writer, RUN / f"in.{service}")
                elif proceeds is None:
                    await refuse(reader, writer, unavailable(UNAVAILABLE, self._remaining_s(service)))

    @staticmethod
    def _remaining_s(service: str) -> float:
        hold = disk.hold(service)
        remaining_s = hold["until"] - time.time() if hold else 0.0
        return remaining_s if remaining_s > 0 else RETRY_S

    async def _wait(self, service: str, connection: socket.socket) -> bool | None:
        """Return True if the request proceeds, False if its client has disconnected, None if it is refused."""
        hold, waiting = disk.hold(service), self.waiting[service]
        if hold is None:
            return True
        if hold["until"] - time.time() > hold["longest_s"] or len(waiting.ends) >= hold["most"]:
            return None
        end: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiting.since_s[connection], waiting.ends[connection] = time.monotonic(), end
        try:
            with self.departures.watched(connection, end):
                return await asyncio.wait_for(end, hold["longest_s"])
        except TimeoutError:
            return None
        finally:
            del waiting.since_s[connection], waiting.ends[connection]

    def figures(self) -> dict[str, dict[str, float]]:
        """Return the figures of every service."""
        return {service: waiting.figures(disk.hold(service)) for service, waiting in self.waiting.items()}

    def _reply(self, request: list[str]) -> str:
        if not request:
            self._look()
            return json.dumps(self.figures())
        if request[1] == METRICS:
            return http(200, "".join(metrics(self.figures())), "text/plain; version=0.0.4")
        return http(*answer(request[0], request[1]))

    async def _report(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reply to HAProxy with metrics or models, to `waiting` of haproxy.py with the figures."""
        with suppress(OSError, ValueError, TimeoutError):
            request = line = await asyncio.wait_for(reader.readline(), REPLY_S)
            remaining = 0
            while line.strip():
                line = await asyncio.wait_for(reader.readline(), REPLY_S)
                if line.lower().startswith(b"content-length:"):
                    remaining = int(line.partition(b":")[2])
            while remaining > 0 and (part := await asyncio.wait_for(reader.read(PART), REPLY_S)):
                remaining -= len(part)  # read the body first: HAProxy closes the client's connection with the reply
            writer.write(self._reply(request.decode().split()).encode())
            writer.write_eof()
            async with asyncio.timeout(REPLY_S):  # unread data would reset the connection
                while await reader.read(PART):
                    pass
        writer.close()


def _connects(file: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as trying:
        trying.settimeout(REPLY_S)
        return trying.connect_ex(str(file)) == 0


async def _run(large_mib: int) -> None:
    await Room(large_mib).run()


def serve(large_mib: str) -> None:
    """Run the waiting room until the container stops. `large_mib`: memory for large bodies, in MiB."""
    try:
        asyncio.run(_run(int(large_mib)))
    except OSError as error:
        sys.exit(f"gateway: the waiting room failed: {error}")
