"""A real HTTP server on this machine that answers as a test says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Asked:
    """A request as it came. `connection` is the client's port: one for each connection. Names of headers are lower."""

    method: str
    path: str
    body: bytes
    connection: int
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Respond = Callable[[Asked], Answer | None]
"""None hangs up without a word."""


@dataclass
class HttpServer:
    port: int
    requests: list[Asked] = field(default_factory=list)


class Server(ThreadingHTTPServer):
    daemon_threads = True  # a test's last answers need not be waited for
    request_queue_size = 1024


@contextmanager
def answering(respond: Respond, host: str = "127.0.0.1") -> Iterator[HttpServer]:
    """Serve until the end of the block. `host`: the address of this machine to listen on."""

    class Conversation(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.requests.append(Asked(self.command, self.path, body, self.client_address[1], headers))
            answer = respond(server.requests[-1])
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            with suppress(ConnectionError):  # whoever asks may have had enough
                self.end_headers()
                self.wfile.write(answer.body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    with Server((host, 0), Conversation) as listening:
        server = HttpServer(listening.server_address[1])
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown()
            thread.join()
