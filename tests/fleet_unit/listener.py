"""Small HTTP servers, on an address or on one stream."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

Respond = Callable[[str], tuple[int, bytes]]
"""Status and body for a path."""


class Listener:
    """Answers on an address until it is closed; then nobody can connect, and connections are cut."""

    def __init__(self, address: str, port: int, respond: Respond) -> None:
        self.respond = respond
        self.open: set[socket.socket] = set()
        self.listening = socket.create_server((address, port))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self.listening.getsockname()[1]
        return port

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                stream, _ = self.listening.accept()
                self.open.add(stream)
                threading.Thread(target=self._converse, args=(stream,), daemon=True).start()

    def _converse(self, stream: socket.socket) -> None:
        converse(stream, self.respond)
        self.open.discard(stream)

    def close(self) -> None:
        """End it."""
        for endpoint in (self.listening, *tuple(self.open)):
            with suppress(OSError):
                endpoint.shutdown(socket.SHUT_RDWR)
        self.listening.close()


def converse(stream: socket.socket, respond: Respond) -> None:
    """Answer every request of a stream until it ends."""

    class Conversation(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = respond(self.path)
            self.send_response(status)
            self.send_header("Api-Version", "1.43")  # in every reply of Docker
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with stream, suppress(OSError):
        Conversation(stream, ("a test", 0), None)  # type: ignore[arg-type]
