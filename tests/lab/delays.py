"""A proxy in front of each of several servers: it delays both directions, and counts connections and round trips."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

CHUNK = 64 * 1024


@dataclass
class Proxy:
    """Carries connections to `target`. `delay_s` is that of a round trip: half of it in each direction.

    A new connection takes one round trip more before the server knows of it, as the handshake of TCP does.
    """

    target: tuple[str, int]
    port: int = 0
    delay_s: float = 0.0
    connections: int = 0
    trips: int = 0
    """Times that a client has sent something after it had received something: it may have waited for that."""

    def forget(self, delay_s: float) -> None:
        """Count from 0, with another delay."""
        self.connections, self.trips, self.delay_s = 0, 0, delay_s

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to its end."""
        self.connections += 1
        await asyncio.sleep(1.5 * self.delay_s)
        try:
            answers, server = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        for end in (writer, server):
            end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = [True]  # the first words of a client wait for nothing but the connection

        def sent() -> None:
            self.trips += received[0]
            received[0] = False

        def answer(data: bytes) -> None:
            received[0] = True
            writer.write(data)

        await asyncio.gather(
            self._pump(reader, server.write, server.close, sent), self._pump(answers, answer, writer.close)
        )

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        write: Callable[[bytes], None],
        close: Callable[[], None],
        arrived: Callable[[], None] = lambda: None,
    ) -> None:
        loop, half_s = asyncio.get_running_loop(), self.delay_s / 2
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                arrived()
                loop.call_later(half_s, write, data)
        loop.call_later(half_s, close)


@contextmanager
def proxies(targets: Mapping[str, tuple[str, int]]) -> Iterator[dict[str, Proxy]]:
    """Serve a proxy for each target, on a port of this machine."""
    loop = asyncio.new_event_loop()
    named = {name: Proxy(target) for name, target in targets.items()}

    async def serve() -> None:
        for proxy in named.values():
            server = await asyncio.start_server(proxy.carry, "127.0.0.1", 0)
            proxy.port = server.sockets[0].getsockname()[1]

    loop.run_until_complete(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield named
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
