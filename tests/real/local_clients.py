"""Clients of a service on the gateway's own node, sent to it as text: each keeps a connection and asks now and then.

Prints a line once they have begun, and when stdin is closed what became of their requests, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

PORT, COUNT = map(int, sys.argv[1:])
ASK = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n"
PAUSE_S = 5.0  # far less than the gateway keeps an idle connection
SEEN: Counter[str] = Counter()
"""By status; `refused`: closed before the first answer, as above the limit of an address; `lost`: closed later."""


async def client(over: asyncio.Event) -> None:
    """Ask until it is over; each connection that was closed is made again."""
    while not over.is_set():
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        except ConnectionResetError:  # HAProxy may close it before its client has noticed that it was opened
            SEEN["refused"] += 1
        except OSError as error:
            SEEN[repr(error)] += 1
        else:
            await conversation(reader, writer, over)
            writer.close()
        await pause(over)


async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, over: asyncio.Event) -> None:
    answered = False
    try:
        while not over.is_set():
            writer.write(ASK)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-length:"))
            await reader.readexactly(length)
            SEEN[lines[0].split()[1]] += 1
            answered = True
            if "connection: close" in lines:
                return
            await pause(over)
    except (OSError, asyncio.IncompleteReadError):
        SEEN["lost" if answered else "refused"] += 1


async def pause(over: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(over.wait(), PAUSE_S)
    except TimeoutError:
        return


async def main() -> None:
    over = asyncio.Event()
    clients = [asyncio.create_task(client(over)) for _ in range(COUNT)]
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    over.set()
    await asyncio.gather(*clients)
    sys.stdout.write(json.dumps(SEEN))


if __name__ == "__main__":
    asyncio.run(main())
