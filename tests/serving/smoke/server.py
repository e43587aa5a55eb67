"""Small real servers for tests: one that plays any bytes, and the stand-in engine as a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from requests import Session

from sparkops.engines import endpoints
from sparkops.node.http import session
from sparkops.node.local import LocalNode
from sparkops.swap.model import Answer
from tests.places import ROOT
from tests.ports import free_port

STAND_IN = ROOT / "templates/stand-in"
Play = Callable[[socket.socket, str], None]


def to(port: int) -> Callable[[], Session]:
    """Sessions that go to a port of this machine."""
    node = LocalNode("here")
    return lambda: session(node, port)


@dataclass
class Player:
    """A server that calls `play` with each connection, once the request has come; it keeps what was asked."""

    play: Play
    received: list[str] = field(default_factory=list)
    port: int = 0

    @contextmanager
    def up(self) -> Iterator[Player]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port = listening.getsockname()[1]
            thread = threading.Thread(target=self._accept, args=(listening,), daemon=True)
            thread.start()
            yield self
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(5)

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            text = receive(connection)
            self.received.append(text)
            self.play(connection, text)


def receive(connection: socket.socket) -> str:
    """One request, headers and body."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += connection.recv(65536)
    head, _, body = text.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0].split(b":")[1]):
        body += connection.recv(65536)
    return (head + b"\r\n\r\n" + body).decode()


def head(status: int = 200, *lines: str) -> bytes:
    """The head of a response."""
    return "\r\n".join([f"HTTP/1.1 {status} Some", "Content-Type: application/json", *lines, "", ""]).encode()


def whole(body: Any, status: int = 200) -> bytes:
    """A whole response."""
    text = (body if isinstance(body, str) else json.dumps(body)).encode()
    return head(status, f"Content-Length: {len(text)}", "Connection: close") + text


def chunk(text: str) -> bytes:
    """One chunk of a chunked response."""
    raw = text.encode()
    return f"{len(raw):x}\r\n".encode() + raw + b"\r\n"


@dataclass
class Engine:
    """The stand-in engine with its knobs, on a port of its own. `ready` waits until it answers."""

    knobs: Mapping[str, object]
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        knobs = {"TOK_S": "20000", "TTFT_S": "0.001", **self.knobs}
        argv = ["serve", "m", f"--port={self.port}", "--host=127.0.0.1", "--served-model-name=chat"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stand_in.main", *argv, "--max-model-len=32768"],
            cwd=STAND_IN,
            env={**{f"STAND_IN_{name}": str(value) for name, value in knobs.items()}, **self.env},
            stdout=subprocess.DEVNULL,
        )

    def ready(self) -> Engine:
        deadline = time.monotonic() + 60
        with to(self.port)() as asking:
            while endpoints.health(asking) is not Answer.YES:
                assert time.monotonic() < deadline
                assert self.process.poll() is None
                time.sleep(0.02)
        return self

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
