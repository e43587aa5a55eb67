"""The other ranks of a replica. As in vLLM with --nnodes, all connect before they load, and all end together."""

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


async def meet(arguments: Arguments) -> list[Link]:
    """Wait for the other ranks and return the connections to them: rank 0 has one to each, the others have its own."""
    if "nnodes" not in arguments.flags:
        return []
    host, port = arguments.flags["master-addr"], int(arguments.flags["master-port"])
    if arguments.headless:
        return [await _join(host, port)]
    return await _gather(host, port, int(arguments.flags["nnodes"]) - 1)


async def _join(host: str, port: int) -> Link:
    while True:
        with suppress(OSError):
            return await asyncio.open_connection(host, port)
        await asyncio.sleep(PAUSE_S)


async def _gather(host: str, port: int, others: int) -> list[Link]:
    met: asyncio.Queue[Link] = asyncio.Queue()
    listening = await asyncio.start_server(lambda *link: met.put_nowait(link), host, port)
    try:
        return [await met.get() for _ in range(others)]
    finally:
        listening.close()


async def watch(links: list[Link]) -> None:
    """End the process when another rank has ended."""
    for _, writer in links:
        for option in ALIVE:
            writer.get_extra_info("socket").setsockopt(*option)
    if links:
        ends = [asyncio.create_task(_ended(reader)) for reader, _ in links]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        die("because the other rank has ended")


async def _ended(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        await reader.read()
