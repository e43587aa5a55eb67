"""What clients of the release that serves feel of a comparison: their times with it and without, side by side.

    python -m tests.lab.bench_comparison

The stand-in engine runs on this machine, with a first token after 0.1 s and 50 tokens a second. Clients ask for eight
tokens, so that each request takes about 0.25 s.

On two x86-64 cores in use by others (2026-11-30), 805 requests beside three comparisons and 818 without one: p50 251
and 246 ms, p99 440 and 434 ms.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from http.client import HTTPConnection

from sparkops.operator.demo.traffic.report import quantile
from sparkops.serving.comparison import answers
from sparkops.serving.comparison.asking import Asking
from tests.examples import recipe
from tests.serving.smoke.server import Engine, to

CLIENTS, PAUSE_S = 8, 0.2
KNOBS = {"TTFT_S": 0.1, "TOK_S": 50}
BODY = json.dumps({"model": "chat", "messages": [{"role": "user", "content": "Write about the sea."}], "max_tokens": 8})
TURNS = 3
P99_RATIO = 1.25


def main() -> None:
    """Print the times of clients with and without a comparison."""
    for name, (value, limit) in promises().items():
        print(f"{value:8.3f}     {name} (at most {limit:.3g})")


def promises() -> dict[str, tuple[float, float]]:
    """Measure in turn without and with a comparison. Returns each promise with what was found and its limit."""
    engine, run = Engine(KNOBS).ready(), recipe()
    asked, took = answers.questions(run), {"without": list[float](), "with": list[float]()}
    try:
        for _ in range(TURNS):
            begin_s = time.monotonic()
            with Clients(engine.port) as clients:
                Asking("old", run, to(engine.port)).answers(asked)
            took["with"] += clients.took_s
            lasted_s = time.monotonic() - begin_s
            with Clients(engine.port) as clients:
                time.sleep(lasted_s)
            took["without"] += clients.took_s
    finally:
        engine.stop()
    p99 = {kind: quantile(sorted(values), 0.99) for kind, values in took.items()}
    for kind, values in took.items():
        shown = f"{statistics.median(values) * 1000:8.1f} ms  {p99[kind] * 1000:8.1f} ms p99"
        print(f"{shown}  {len(values)} requests, {kind} a comparison")
    return {"p99 of clients with / without a comparison": (p99["with"] / p99["without"], P99_RATIO)}


class Clients:
    """Clients that ask one request after another while it is entered; seconds of each in `took_s`."""

    def __init__(self, port: int) -> None:
        self.port, self.took_s, self.over = port, list[float](), threading.Event()
        self.threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def _run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.over.wait(PAUSE_S):
            began_s = time.monotonic()
            connection.request("POST", "/v1/chat/completions", BODY, {"content-type": "application/json"})
            with connection.getresponse() as response:
                response.read()
            assert response.status == 200
            self.took_s.append(time.monotonic() - began_s)

    def __enter__(self) -> Clients:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


if __name__ == "__main__":
    main()
