"""`serve.sticky` with three engines: requests that reach the engine of their conversation, and the time of the hash.

    python -m tests.lab.bench_sticky

HAProxy and engines run on this machine. A request hits if it reaches the engine of the request before it in its
conversation. Each engine takes 0.1 s for a request; a client pauses 0.5 s in the mean before its next one.

On two x86-64 cores in use by others (2026-11-29, HAProxy 2.6.12), with about 1, 4, 12 and 25 requests open, 75%, 83%,
96% and 100% hit, without the hash 31 to 34%. It added less than 0.1 ms at p50 to 4 KB and 90 KB, and 0.9 ms to 90 KB of
characters that JSON escapes.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

from sparkops.config.inventory import Gateway
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.demo.traffic.report import quantile
from tests.gateway.here import Program, moved
from tests.gateway.live import ENGINE
from tests.ports import free_port

PATH, RELEASE, ENGINES = "/v1/chat/completions", "chat-0123456789", 3
ROUNDS = 300
ANSWER_S, SECONDS = 0.1, 8.0
CONVERSATIONS = 4
"""Conversations of each client, which takes turns at random."""
PAUSE_S = 0.5
CLIENTS = (1, 6, 24, 72, 150)
KB, MB = 1000, 1_000_000


def main() -> None:
    """Print the share of hits, and p50 and p99 of every size, with and without the hash."""
    with ExitStack() as stack:
        ports = [stack.enter_context(engine(f"e{number}")) for number in range(ENGINES)]
        plain = stack.enter_context(gateway(ports, sticky=False))
        sticky = stack.enter_context(gateway(ports, sticky=True))
        for clients in CLIENTS:
            open_requests = clients * ANSWER_S / (ANSWER_S + PAUSE_S)
            shares = {kind: hits(port, clients, PAUSE_S) for kind, port in (("leastconn", plain), ("sticky", sticky))}
            row = ", ".join(f"{kind} {share:.0%}" for kind, share in shares.items())
            print(f"about {open_requests:4.1f} requests open: {row} of requests hit")
        for name, body in BODIES.items():
            timed(name, body, {"leastconn": plain, "sticky": sticky})


def opening(number: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"Question {number}"}]


def body(size: int, character: str = "x") -> bytes:
    """A conversation of about `size` bytes, as OpenAI's client sends it."""
    end = {"role": "assistant", "content": character * (size // len(json.dumps(character)[1:-1]))}
    return json.dumps({"messages": [*opening(1), end], "model": "chat"}).encode()


BODIES = {
    "4 KB": body(4 * KB),
    "90 KB": body(90 * KB),
    "1 MB": body(MB),
    "90 KB of escapes": body(90 * KB, "\u4f60"),
    "90 KB without a conversation": json.dumps({"text": "x" * 90 * KB}).encode(),
}


@contextmanager
def engine(name: str) -> Iterator[int]:
    """An engine of the gateway's tests on this machine; its port."""
    port = free_port()
    argv = [sys.executable, str(ENGINE), name, str(port)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        yield port
        process.stdin.close()


@contextmanager
def gateway(engines: list[int], *, sticky: bool) -> Iterator[int]:
    """A gateway of this machine with these engines; its port."""
    port, metrics = free_port(), free_port()
    settings = Gateway(node="n", metrics_port=metrics, client_connections=1000, client_requests=1_000_000)
    given = render.config([Service("chat", port, sticky=sticky)], settings, files.load_templates())
    with tempfile.TemporaryDirectory() as home:
        state, run = Path(home) / "state", Path(home) / "run"
        state.mkdir()
        program = Program(state, run)
        program.give({name: moved(text, state, run) for name, text in given.items()})
        with program.started():
            pointed = program.call("point", "chat", "blue", RELEASE, *(f"127.0.0.1:{number}" for number in engines))
            assert pointed.returncode == 0, pointed.stderr
            assert program.call("switch", "chat", "blue", RELEASE).returncode == 0
            yield port


def ask(connection: HTTPConnection, body: bytes) -> str:
    """Send a request, and return the engine that answered."""
    connection.request("POST", PATH, body, {"content-type": "application/json"})
    with connection.getresponse() as response:
        answer = response.read()
    assert response.status == 200, answer
    return response.headers["x-stand-in"]


def hits(port: int, clients: int, pause_s: float) -> float:
    """Return the share of requests that reach the engine of the request before."""
    last: dict[int, str] = {}
    seen: list[bool] = []
    end = time.monotonic() + SECONDS

    def client(first: int) -> None:
        chosen = random.Random(first)
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        while time.monotonic() < end:
            number = first + chosen.randrange(CONVERSATIONS)
            sent = {"messages": opening(number), "wait_s": chosen.uniform(0.5, 1.5) * ANSWER_S}
            name = ask(connection, json.dumps(sent).encode())
            if number in last:
                seen.append(last[number] == name)
            last[number] = name
            time.sleep(chosen.uniform(0, 2) * pause_s)

    threads = [threading.Thread(target=client, args=(CONVERSATIONS * number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.mean(seen)


def timed(name: str, body: bytes, ports: Mapping[str, int]) -> None:
    """Print p50 and p99 of a body through each port, in turn."""
    connections = {kind: HTTPConnection("127.0.0.1", port, timeout=60) for kind, port in ports.items()}
    took: dict[str, list[float]] = {kind: [] for kind in ports}
    for _ in range(ROUNDS):
        for kind, connection in connections.items():
            began = time.perf_counter()
            ask(connection, body)
            took[kind].append((time.perf_counter() - began) * 1000)
    for kind, took_ms in took.items():
        print(f"{statistics.median(took_ms):8.2f} ms  {quantile(sorted(took_ms), 0.99):8.2f} ms p99  {name}, {kind}")


if __name__ == "__main__":
    main()
