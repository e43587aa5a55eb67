"""A tiny engine for the gateway's tests, sent to a node as text. It ends when its stdin is closed.

A short request is answered at once, a stream has a part every 50 ms. A stream without `max_tokens` goes on until a line
comes on stdin. Every answer says which engine gave it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading

NAME, PORT = sys.argv[1], int(sys.argv[2])
PART_S = 0.05


class Engine:
    """What it has seen: `requests` begun, and those whose client left. `finished` ends the streams that are open."""

    def __init__(self) -> None:
        self.requests = 0
        self.left = 0
        self.finished = asyncio.Event()

    def finish(self) -> None:
        self.finished.set()
        self.finished = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := (await reader.readuntil(b"\r\n\r\n")).decode()) and await self.answer(head, reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"{}")
        if "/seen" in first:
            self.reply(writer, {"requests": self.requests, "left": self.left, "headers": headers})
        elif isinstance(body, list):
            self.reply(writer, {})
        elif body.get("die"):
            writer.transport.abort()
        elif body.get("fail"):
            writer.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
        elif body.get("stream"):
            self.requests += 1
            await self.stream(writer, body.get("max_tokens"))
        else:
            self.requests += 1
            await self.short(reader, writer, float(body.get("wait_s", 0)))
        await writer.drain()
        return headers.get("connection", "") != "close"

    async def short(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wait_s: float) -> None:
        if wait_s:
            try:
                await asyncio.wait_for(reader.read(1), wait_s)
                self.left += 1
            except ConnectionError:
                self.left += 1
                raise
            except TimeoutError:
                pass
        self.reply(writer, {"choices": [{"message": {"content": "Paris"}}]})

    def reply(self, writer: asyncio.StreamWriter, content: object) -> None:
        body = json.dumps(content).encode()
        writer.write(f"HTTP/1.1 200 OK\r\nx-stand-in: {NAME}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)

    async def stream(self, writer: asyncio.StreamWriter, parts: int | None) -> None:
        finished, numbers = self.finished, itertools.count() if parts is None else range(parts)
        kind = "content-type: text/event-stream\r\ntransfer-encoding: chunked"
        writer.write(f"HTTP/1.1 200 OK\r\nx-stand-in: {NAME}\r\n{kind}\r\n\r\n".encode())
        for number in itertools.takewhile(lambda _: not finished.is_set(), numbers):
            writer.write(chunk(f"{NAME} {number}"))
            await writer.drain()
            await asyncio.sleep(PART_S)
        writer.write(chunk("[DONE]") + b"0\r\n\r\n")


def chunk(text: str) -> bytes:
    part = f"data: {text}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(part), part)


async def main() -> None:
    engine, loop = Engine(), asyncio.get_running_loop()
    async with await asyncio.start_server(engine.serve, "0.0.0.0", PORT, backlog=1024) as server:

        def read() -> None:
            for _ in sys.stdin:
                loop.call_soon_threadsafe(engine.finish)
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(engine.finish)

        threading.Thread(target=read).start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main())
