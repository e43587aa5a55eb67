"""A question to a release, over real sockets: only the right release with 200 counts as an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from sparkops.guard import completion
from sparkops.guard.completion import Completion, CompletionRequest
from sparkops.names import Slot
from sparkops.nodes.http import MOST_BYTES

pytestmark = pytest.mark.local


@contextmanager
def gateway(
    status: int, release: str, late: threading.Event | None = None, size: int = 0, path: str = ""
) -> Iterator[int]:
    """Answers every completion so, on a port of its own."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == f"{path}{completion.COMPLETIONS}"
            assert (self.headers["x-sparkops-preview"], self.headers["x-sparkops-slot"]) == ("t0k3n", "green")
            self.rfile.read(int(self.headers["Content-Length"]))
            if late:
                late.wait(30)
            self.send_response(status)
            self.send_header("x-sparkops-release", release)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            with suppress(OSError):  # whoever asks may have had enough
                self.wfile.write(bytes(size))

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(port: int, **more: Any) -> Completion:
    return CompletionRequest("chat", port, "q-2", Slot.GREEN, "t0k3n", **more).send()


@pytest.mark.parametrize(
    ("status", "release", "expected"),
    [
        (200, "q-2", Completion.RIGHT),
        (200, "q-1", Completion.WRONG),
        (503, "q-2", Completion.WRONG),
        (500, "", Completion.WRONG),
    ],
)
def test_only_the_right_release_counts(status: int, release: str, expected: Completion) -> None:
    with gateway(status, release) as port:
        assert ask(port) is expected


def test_at_the_one_address_the_path_names_the_service() -> None:
    with gateway(200, "q-2", path="/chat") as port:
        assert ask(port, path="/chat") is Completion.RIGHT


def test_a_closed_port_says_nothing_of_a_release() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert ask(unused.getsockname()[1]) is Completion.CLOSED


def test_an_answer_that_does_not_come_is_late() -> None:
    end = threading.Event()
    with gateway(200, "q-2", end) as port:
        assert ask(port, answer_s=0.2) is Completion.LATE
        end.set()


@pytest.mark.parametrize(("size", "expected"), [(MOST_BYTES, Completion.RIGHT), (4 * MOST_BYTES, Completion.WRONG)])
def test_an_answer_that_is_too_long_is_wrong(size: int, expected: Completion) -> None:
    with gateway(200, "q-2", size=size) as port:
        assert ask(port) is expected


def test_tls_that_the_gateway_does_not_speak_is_wrong() -> None:
    with gateway(200, "q-2") as port:
        assert ask(port, encrypted=True) is Completion.WRONG
