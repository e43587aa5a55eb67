"""Two guards and a gateway to scrape: the real server of a guard with figures of a test, and HAProxy's as text."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from sparkops.guard.disk.state import Monitored, State
from sparkops.guard.report import exposition
from sparkops.guard.report.exposition import EngineFigures, GuardFigures, PeerFigures, ServiceFigures
from sparkops.guard.report.monitoring import FiguresServer
from sparkops.serving.watch.finding import EngineFinding
from sparkops.swap.model import Answer, Phase
from tests.examples import HOST, container, rank
from tests.operator.deploy.states import serving, swapping
from tests.operator.status.monitoring.conftest import KEY, NODES
from tests.ports import free_port

GOOD_SERVICE = ServiceFigures(serving().journal, Answer.YES, needs_operator=False)
BAD_SERVICE = ServiceFigures(swapping(Phase.LOAD).journal, Answer.NO, needs_operator=True)
ENGINE = EngineFigures(container(rank()), True, {"vllm:num_requests_waiting": 0.0, "vllm:kv_cache_usage_perc": 0.1})
BUSY = {"vllm:num_requests_waiting": 50.0, "vllm:kv_cache_usage_perc": 0.99}
GOOD = GuardFigures(
    version="1",
    started_at=1.0,
    leads=True,
    docker=True,
    host=HOST,
    engines=(ENGINE,),
    peers=(PeerFigures("n2", True, 1.0),),
    services=(GOOD_SERVICE,),
)
BAD = replace(
    GOOD,
    leads=False,
    docker=False,
    read_at=1.0,
    host=replace(HOST, memory_available_gib=0.5, disk_free_gib=1.0),
    engines=(replace(ENGINE, sums=BUSY),),
    peers=(PeerFigures("n2", False, 1.0),),
    services=(BAD_SERVICE,),
    findings=(
        EngineFinding(
            code="STALLED", service="chat", node="n1", container="c", since=1.0, detail="no step", next_step="status"
        ),
    ),
)
REPLIES = """\
# TYPE haproxy_backend_http_responses_total counter
haproxy_backend_http_responses_total{{proxy="be_chat_blue",code="2xx"}} {good}
haproxy_backend_http_responses_total{{proxy="be_chat_blue",code="5xx"}} {bad}
"""


@dataclass
class World:
    """`bad`: everything but the gateway is. Each scrape of a bad guard sees another start of its engine."""

    directory: Path
    guards: int = field(default_factory=free_port)
    gateway: int = field(default_factory=free_port)
    bad: bool = False
    starts: Iterator[int] = field(default_factory=lambda: itertools.count(1000))
    replies: dict[str, int] = field(default_factory=lambda: {"good": 0, "bad": 0})
    refused: int = 0
    """Scrapes of the gateway without the key."""

    def figures(self) -> bytes:
        if not self.bad:
            return exposition.text(GOOD)
        [engine] = BAD.engines
        started = replace(engine, container=replace(engine.container, started_at=float(next(self.starts))))
        return exposition.text(replace(BAD, engines=(started,)))

    @contextmanager
    def guard(self, node: str) -> Iterator[FiguresServer]:
        """Serve the figures of a node's guard."""
        served = FiguresServer(State(self.directory / node), self.figures, lambda _: None, NODES[node])
        served.change(Monitored(self.guards, hashlib.sha256(KEY.encode()).hexdigest()))
        try:
            yield served
        finally:
            served.close()

    @contextmanager
    def haproxy(self) -> Iterator[None]:
        """Serve the gateway's figures."""
        world = self

        class Replies(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                right = self.headers["Authorization"] == f"Bearer {KEY}"
                world.refused += not right
                world.replies["good"] += 10
                world.replies["bad"] += 10 * world.bad
                text = REPLIES.format(**world.replies) if self.path == "/metrics" else ""
                with suppress(OSError):
                    self.send_response(200 if right else 401)
                    self.end_headers()
                    self.wfile.write(text.encode() if right else b"")

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", self.gateway), Replies) as server:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            yield
            server.shutdown()
