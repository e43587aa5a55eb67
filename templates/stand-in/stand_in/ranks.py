"""The other rank of a replica. As in vLLM with --nnodes, both connect before they load, and both end together."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from stand_in.arguments import Arguments
from stand_in.server import die

PAUSE_S = 0.1
ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A rank whose node has lost its power, or its network, sends no end: after 5 s without a reply it has ended too."""
Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def meet(arguments: Arguments) -> Link | None:
    """Wait for the other rank and return the connection to it; None for a replica of one rank."""
    if "nnodes" not in arguments.flags:
        return None
    host, port = arguments.flags["master-addr"], int(arguments.flags["master-port"])
    return await (_join(host, port) if arguments.headless else _gather(host, port))


async def _join(host: str, port: int) -> Link:
    while True:
        with suppress(OSError):
            return await asyncio.open_connection(host, port)
        await asyncio.sleep(PAUSE_S)


async def _gather(host: str, port: int) -> Link:
    met: asyncio.Queue[Link] = asyncio.Queue()
    listening = await asyncio.start_server(lambda *link: met.put_nowait(link), host, port)
    try:
        return await met.get()
    finally:
        listening.close()


async def watch(link: Link | None) -> None:
    """End the process when the other rank has ended."""
    if link:
        for option in ALIVE:
            link[1].get_extra_info("socket").setsockopt(*option)
        with suppress(OSError):
            await link[0].read()
        die("because the other rank has ended")
