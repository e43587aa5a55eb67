"""A sample of the speed of an engine, from a real server: what counts, and what is dropped."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sparkops.guard.follow import smoke_runs
from sparkops.node.local import LocalNode
from sparkops.serving.watch.pace import TOKENS
from tests.examples import recipe

pytestmark = pytest.mark.local


@dataclass
class Engine:
    """An engine that streams its tokens with pauses. `others`: tokens of other requests meanwhile."""

    pause_s: float = 0.002
    others: int = 0
    running: list[int] = field(default_factory=lambda: [0])
    """Requests at each look, the last one for all further looks."""
    cut: bool = False
    generated: int = 1000
    bodies: list[Any] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[int]:
        engine = self

        class Replies(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                running = engine.running.pop(0) if len(engine.running) > 1 else engine.running[0]
                text = f"vllm:num_requests_running {running}\nvllm:generation_tokens_total {engine.generated}\n"
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def do_POST(self) -> None:
                engine.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for _ in range(TOKENS // 2 if engine.cut else TOKENS):
                    self.piece(json.dumps({"choices": [{"delta": {"content": "a"}}]}))
                    time.sleep(engine.pause_s)
                engine.generated += TOKENS + engine.others
                if not engine.cut:
                    self.piece(json.dumps({"choices": [], "usage": {"completion_tokens": TOKENS}}))
                    self.piece("[DONE]")
                self.wfile.write(b"0\r\n\r\n")

            def piece(self, text: str) -> None:
                event = f"data: {text}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Replies) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            yield server.server_address[1]
            server.shutdown()

    def pace(self) -> float | None:
        with self.serve() as port:
            return smoke_runs.pace(LocalNode("n1"), port, recipe(), threading.Event())


def test_the_speed_is_that_of_one_short_stream_of_fixed_length() -> None:
    engine = Engine()
    tok_s = engine.pace()

    assert tok_s is not None
    assert 0 < tok_s < 1 / engine.pause_s
    (body,) = engine.bodies
    assert (body["max_tokens"], body["ignore_eos"], body["stream"], body["temperature"]) == (TOKENS, True, True, 0)


def test_an_engine_that_counts_its_last_request_a_moment_longer_is_idle() -> None:
    assert Engine(running=[0, 1, 0]).pace() is not None


@pytest.mark.parametrize(
    ("engine", "requests"),
    [(Engine(running=[1]), 0), (Engine(others=1), 1), (Engine(cut=True), 1)],
    ids=["busy before", "tokens of another request", "cut"],
)
def test_a_sample_beside_other_requests_or_of_half_a_stream_is_dropped(engine: Engine, requests: int) -> None:
    assert engine.pace() is None
    assert len(engine.bodies) == requests


def test_an_engine_that_stays_busy_afterwards_gives_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke_runs, "SETTLES", 1)

    assert Engine(running=[0, 1]).pace() is None
