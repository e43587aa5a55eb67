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
from functools import partial
from pathlib import Path

import disk
from disk import RUN
from haproxy import ADMIN, ROOM
from large import LargeRequests
from relay import PART, REPLY_S, Arrival, Departures, Refusal, proxy_header, refuse, relay, write
from replies import answer, http, metrics
from waiting import Waiting, Waits

LARGE = RUN / "large.sock"
METRICS = "/metrics/waiting"
POLL_S = 0.5  # `switch` and `hold` do not wait for it: a request for figures reads the files too
ENDING_POLL_S, ENDING_S = 0.05, 30.0  # after a signal, which may mean HAProxy's end; longer than `docker stop` waits
ENDED = 20  # consecutive polls without HAProxy, after a signal
BACKLOG = 4096


def listen(file: Path) -> socket.socket:
    """Return a listening Unix socket, in place of one that an earlier process left."""
    file.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(file))
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


class Room:
    """The waiting room: its sockets, and the requests that come through them."""

    def __init__(self, large_mib: int, places: int, place: int) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.departures = Departures()
        self.waits = Waits(places, place)
        self.large = LargeRequests(large_mib, self.waits)
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
        for service in disk.services():
            if service not in self.waits.services:
                self.waits.services[service] = Waiting()
                self._spawn(self._accept(listen(RUN / f"wait.{service}"), partial(self._serve, service)))
        self.waits.release()

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine without a result
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _accept(self, listening: socket.socket, serve: Callable[[Arrival], Awaitable[None]]) -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            connection.setblocking(False)
            self._spawn(self._admit(connection, serve))

    async def _admit(self, connection: socket.socket, serve: Callable[[Arrival], Awaitable[None]]) -> None:
        with connection, suppress(OSError, EOFError, TimeoutError), self.departures.watched(connection) as left:
            try:
                await serve(Arrival(connection, await proxy_header(connection), left))
            except Refusal as refusal:
                await refuse(connection, str(refusal))

    async def _serve(self, service: str, arrival: Arrival) -> None:
        with self.waits.memory.lent(arrival.client) as place:
            await self.waits.wait(service, arrival, place)
        await relay(arrival, RUN / f"in.{service}", lambda to: write(to, arrival.proxy))

    def _reply(self, request: list[str]) -> str:
        if not request:
            self._look()
            return json.dumps(self.waits.figures())
        if request[1] == METRICS:
            return http(200, "".join(metrics(self.waits.figures())), "text/plain; version=0.0.4")
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


async def _run(large_mib: int, places: int, place: int) -> None:
    await Room(large_mib, places, place).run()


def serve(large_mib: str, places: str, place: str) -> None:
    """Run the waiting room until the container stops.

    `large_mib`: memory for large bodies, in MiB; `places`: requests that may wait in all; `place`: bytes of each.
    """
    try:
        asyncio.run(_run(int(large_mib), int(places), int(place)))
    except OSError as error:
        sys.exit(f"gateway: the waiting room failed: {error}")
