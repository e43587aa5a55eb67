"""A gateway on this machine with its waiting room, and an engine that keeps the bytes which it receives."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkops.config.inventory import Gateway
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service
from tests.gateway.here import PROGRAM, WITHIN_S, Program
from tests.ports import free_port

KEY = "sk-valid-0123456789abcdef"
ROOM = "command /usr/local/bin/gateway "
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
REPLY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
AFTER_S = 0.2  # for bytes after a request: they would be there at once


@dataclass(frozen=True)
class Received:
    """A request as an engine gets it, and the bytes that follow it on its connection."""

    head: bytes
    body: bytes
    after: bytes

    @property
    def path(self) -> str:
        return self.head.split()[1].decode()


class Engine(socketserver.ThreadingTCPServer):
    """Replies `{}`, or `reply`, to every request and keeps it."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.received: list[Received] = []
        self.reply = REPLY
        self.pauses_s = 0.0
        """Before a reply, and within it."""

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Connection(socketserver.StreamRequestHandler):
    server: Engine

    def handle(self) -> None:
        with suppress(OSError):
            head = b"".join(iter(self.rfile.readline, b"\r\n"))
            if not head:
                return
            length, body = LENGTH.search(head), b""
            if length and len(length[1]) < 15:
                body = self.rfile.read(int(length[1]))
            elif CHUNKED.search(head):
                while (size := int(self.rfile.readline() or b"0", 16)) and (part := self.rfile.read(size)):
                    body += part
                    self.rfile.readline()
                self.rfile.readline()
            time.sleep(self.server.pauses_s)
            self.wfile.write(self.server.reply[:-1])
            time.sleep(self.server.pauses_s)
            self.wfile.write(self.server.reply[-1:])
            self.server.received.append(Received(head, body, received(self.connection, AFTER_S, AFTER_S)))


@dataclass
class Attacked:
    """A gateway with the service `chat`, whose active release is `engine`."""

    program: Program
    engine: Engine
    ports: dict[str, int] = field(default_factory=dict)
    """By service; that of the one address is `one`."""

    @property
    def port(self) -> int:
        return self.ports["chat"]

    def connect(self, port: int = 0, source: str = "127.0.0.1") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port or self.port), WITHIN_S, (source, 0))
        connection.settimeout(WITHIN_S)
        return connection

    def send(self, data: bytes, port: int = 0, source: str = "127.0.0.1") -> bytes:
        """Return all that comes back until the gateway closes, or until nothing has come for two seconds."""
        with suppress(ConnectionError, TimeoutError), self.connect(port, source) as connection:
            connection.sendall(data)
            return received(connection)
        return b""

    def status(self, data: bytes, port: int = 0, source: str = "127.0.0.1") -> int:
        """Return the status of the first reply; 0 without one."""
        reply = self.send(data, port, source)
        return int(reply.split()[1]) if reply.startswith(b"HTTP/1.") else 0

    def workers(self) -> list[int]:
        """Return the process IDs of HAProxy's workers."""
        lines = self.program.shown()["haproxy"]["processes"].splitlines()
        return [int(line.split()[0]) for line in lines if line.split()[1:2] == ["worker"]]


def received(connection: socket.socket, quiet_s: float = 2.0, first_s: float = WITHIN_S) -> bytes:
    """Return what comes until the other side closes or is quiet for `quiet_s`, at first for `first_s`."""
    got = bytearray()
    connection.settimeout(first_s)
    with suppress(ConnectionError, TimeoutError):
        while part := connection.recv(65536):
            got += part
            connection.settimeout(quiet_s)
    return bytes(got)


def peak_mib(pid: int) -> float:
    """Return the most memory in MiB that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return float(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[0]) / 1024


def wait_for(holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@contextmanager
def attacked(
    directory: Path,
    *,
    secrets: Secrets | None = None,
    change: Callable[[str], str] = str,
    services: tuple[str, ...] = ("chat",),
    log: Path = Path(os.devnull),
    **settings: Any,
) -> Iterator[Attacked]:
    """Start a gateway with these settings. `change` edits each file of its configuration."""
    (directory / "state").mkdir()
    program = Program(directory / "state", directory / "run")
    ports = {name: free_port() for name in (*services, "one")}
    given = Gateway(node="n", metrics_port=free_port(), port=ports["one"], **settings)
    known = [Service(name, ports[name]) for name in services]
    texts = render.files(known, given, secrets or Secrets(), files.load_templates())
    program.give({name: change(here(text, program)) for name, text in texts.items() if text})
    with Engine() as engine, program.started(log):
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        for name in services:
            assert program.call("point", name, "blue", "chat-1", f"127.0.0.1:{engine.port}").returncode == 0
            assert program.call("switch", name, "blue", "chat-1").returncode == 0
        wait_for(lambda: program.shown()["room"])
        yield Attacked(program, engine, ports)
        engine.shutdown()


def here(text: str, program: Program) -> str:
    """Return a file of the configuration with the paths of this machine."""
    text = text.replace(ROOM, f"command {sys.executable} -B {PROGRAM / '__main__.py'} ")
    return text.replace("/var/lib/gateway", str(program.state)).replace("/run/gateway", str(program.run))
