"""The gateway: routing beside a direct port, TLS, and 900 requests of one client that wait while HAProxy reloads."""

from __future__ import annotations

import asyncio
import io
import json
import multiprocessing
import ssl
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

from sparkops.config import inventory
from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.gateway.capacity import MEMORY_MIB
from sparkops.gateway.commands import Endpoint
from sparkops.names import Slot
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.demo.traffic.report import quantile
from sparkops.operator.fleet.connected import connect
from sparkops.swap.effects import RequestHold
from tests.fleet import shell
from tests.fleet.fleet import Fleet
from tests.gateway.live import ENGINES, METRICS, Live, wait_for
from tests.places import ROOT

ONE, FIRST = 9380, 9400
SERVICES = [Service(f"chat-{number}", FIRST + 10 * number) for number in range(10)]
ENGINE = ENGINES[Slot.BLUE]
CHAT = "/v1/chat/completions"
KB, MB = 1000, 1_000_000
ROUNDS = 200
PART = 65536
HELD_SERVICES, HELD_S = 4, 300.0
HELD_EACH, LARGE_HELD_EACH = 225, 125
"""Requests of every service that wait, of 4 KB and of 1 MB."""
NAME = "gateway-bench"
STAND_IN = ROOT / "templates/stand-in"
EXTRA_MS = 1.0
"""Aim: milliseconds at p50 that routing by name may add to a request of 4 KB."""
PEAKS = ("/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes")
"""Highest memory of a container since its start in bytes: cgroup v2, cgroup v1."""


@dataclass(frozen=True)
class Case:
    """One way to send a request: a port, a path, and the name in its body of about `size` bytes."""

    port: int
    size: int
    path: str = CHAT
    model: str = SERVICES[0].name
    tls: bool = False

    @property
    def body(self) -> bytes:
        """The messages come before the model, as OpenAI's client sends them."""
        question = {"role": "user", "content": "What is the capital of France?"}
        messages = [{"role": "system", "content": "x" * (self.size - 200)}, question]
        return json.dumps({"messages": messages, "model": self.model, "max_tokens": 4}).encode()


def measure(nodes: Fleet) -> dict[str, tuple[float, float]]:
    """Print what was measured. Returns each promise with what was measured and its limit."""
    with gateway(nodes) as live:
        direct_ms, by_name_ms = latencies(live)
        encrypted(live)
        failed, peak_mib = held(live, 4 * KB, HELD_EACH)
        large_failed, large_peak_mib = held(live, MB, LARGE_HELD_EACH)
    return {
        "gateway: by name - the service's port, 4 KB, p50 in ms": (by_name_ms - direct_ms, EXTRA_MS),
        "gateway: 900 requests of 4 KB wait, failed": (failed, 0),
        "gateway: 900 requests of 4 KB wait, memory in MiB": (peak_mib, MEMORY_MIB),
        "gateway: 500 requests of 1 MB wait, failed": (large_failed, 0),
        "gateway: 500 requests of 1 MB wait, memory in MiB": (large_peak_mib, MEMORY_MIB),
    }


@contextmanager
def gateway(nodes: Fleet) -> Iterator[Live]:
    """A gateway with ten services on a node of its own; one stand-in engine there answers for all."""
    machine = nodes.add(NAME)
    try:
        with tempfile.TemporaryDirectory() as home:
            file = nodes.write_inventory(Path(home) / "inventory.yaml", [machine])
            with connect(inventory.load(file)) as connected, engine(machine.container):
                live = Live(machine, connected.members[NAME], settings())
                live.run(commands.run(live.build(), "0" * 64))
                live.configure(*SERVICES)
                for service in SERVICES:
                    live.run(
                        commands.point(service.name, Slot.BLUE, "chat-1", [Endpoint("127.0.0.1", ENGINE, "chat-1")])
                    )
                    live.run(commands.switch(service.name, Slot.BLUE, "chat-1"))
                wait_for("engine", lambda: live.ask(port=ENGINE).status == 200)
                yield live
    finally:
        nodes.remove(NAME)


def settings(certificate: str | None = None) -> Gateway:
    """The gateway's section of the inventory. All clients have one address."""
    return Gateway(
        node=NAME,
        metrics_port=METRICS,
        port=ONE,
        client_connections=1000,
        client_requests=1_000_000,
        tls_certificate=certificate,
    )


@contextmanager
def engine(container: str) -> Iterator[None]:
    """The stand-in on the gateway's node, as fast as it can. It ends with the node."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(STAND_IN, "stand-in")
    words = [shell.client(), "exec", "-i", container]
    subprocess.run([*words, "tar", "-xC", "/opt"], input=packed.getvalue(), check=True)
    names = [service.name for service in SERVICES]
    fast = ("env", "STAND_IN_TTFT_S=0", "STAND_IN_TOK_S=100000", "STAND_IN_START_S=0.1")
    serve = ("python3", "-S", "/opt/stand-in/vllm.py", "serve", "/models/x", f"--port={ENGINE}")
    flags = ("--disable-uvicorn-access-log", "--max-model-len=1000000", "--served-model-name", *names)
    with subprocess.Popen([*words, *fast, *serve, *flags], stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def latencies(live: Live) -> tuple[float, float]:
    """Print p50 and p99 of every case. Returns p50 in ms of 4 KB to a service's own port and by name."""
    one = {f"by name, {label}": Case(ONE, size) for label, size in (("4 KB", 4 * KB), ("90 KB", 90 * KB), ("1 MB", MB))}
    ports = {
        f"{name}, {label}": Case(port, size)
        for label, size in (("4 KB", 4 * KB), ("90 KB", 90 * KB), ("1 MB", MB))
        for name, port in (("engine's port", ENGINE), ("service's port", FIRST))
    }
    path = {"by path, 1 MB": Case(ONE, MB, f"/{SERVICES[0].name}{CHAT}")}
    last = {"by name, 4 KB, the last of ten services": Case(ONE, 4 * KB, model=SERVICES[-1].name)}
    p50_ms = timed(live, {**ports, **one, **path, **last})
    return p50_ms["service's port, 4 KB"], p50_ms["by name, 4 KB"]


def timed(live: Live, cases: Mapping[str, Case]) -> dict[str, float]:
    """Send requests of all cases in turn, each over one connection. Prints, and returns p50 in ms by case."""
    connections = {name: connection(live, case) for name, case in cases.items()}
    bodies = {name: case.body for name, case in cases.items()}
    took: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(ROUNDS + 10):
        for name, case in cases.items():
            began = time.perf_counter()
            connections[name].request("POST", case.path, bodies[name], {"content-type": "application/json"})
            with connections[name].getresponse() as response:
                body = response.read()
            assert (response.status, b"choices" in body) == (200, True), body
            if number >= 10:
                took[name].append((time.perf_counter() - began) * 1000)
    for name, took_ms in took.items():
        print(f"{statistics.median(took_ms):8.2f} ms  {quantile(sorted(took_ms), 0.99):8.2f} ms p99  {name}")
    return {name: statistics.median(took_ms) for name, took_ms in took.items()}


def connection(live: Live, case: Case) -> HTTPConnection:
    """One connection that is kept."""
    if not case.tls:
        return HTTPConnection(live.machine.address, case.port, timeout=30)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection(live.machine.address, case.port, timeout=30, context=context)


def encrypted(live: Live) -> None:
    """Print what TLS takes by name, and the answer to a body that is no JSON."""
    with tempfile.TemporaryDirectory() as home:
        live.secrets = Secrets(certificate=certificate(Path(home)))
        live.gateway = settings("tls.pem")
        live.configure(*SERVICES)
        timed(live, {"by name, 4 KB, TLS": Case(ONE, 4 * KB, tls=True)})
        file = Path(home) / "body"
        file.write_bytes(b"--boundary\r\nno JSON")
        refused = curl(live, file, ROUNDS)
        assert {(version, status) for version, status, _ in refused} == {("1.1", "400")}, refused[:3]
        shown("a body that is no JSON, refused with 400", [took_s * 1000 for *_, took_s in refused[10:]])
    live.secrets, live.gateway = Secrets(), settings()
    live.configure(*SERVICES)


def shown(name: str, took_ms: list[float]) -> None:
    """Print a row of the table."""
    print(f"{statistics.median(took_ms):8.2f} ms  {quantile(sorted(took_ms), 0.99):8.2f} ms p99  {name}")


def certificate(home: Path) -> str:
    """A certificate of its own with its key, PEM."""
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=gateway"]
    argv = ["openssl", *request, "-keyout", str(home / "key"), "-out", str(home / "crt")]
    subprocess.run(argv, check=True, capture_output=True)
    return (home / "crt").read_text() + (home / "key").read_text()


def curl(live: Live, body: Path, count: int) -> list[tuple[str, str, float]]:
    """Send a body `count` times over one connection of curl. Returns HTTP version, status and seconds of each."""
    url = f"https://{live.machine.address}:{ONE}{CHAT}?n=[1-{count}]"
    form = "%{http_version} %{http_code} %{time_total}\\n"
    argv = ["curl", "--silent", "--insecure", "--data-binary", f"@{body}", "--write-out", form]
    ran = subprocess.run([*argv, "--output", "/dev/null", url], check=True, capture_output=True, text=True)
    return [(version, status, float(took)) for version, status, took in map(str.split, ran.stdout.splitlines())]


def held(live: Live, size: int, per_service: int) -> tuple[float, float]:
    """Let requests of `size` bytes wait, `per_service` at each of four services, and release them after a reload.

    Returns failed requests, and the highest memory so far in MiB.
    """
    services, count = SERVICES[:HELD_SERVICES], HELD_SERVICES * per_service
    for service in services:
        live.run(commands.hold(service.name, RequestHold("1.2", 60.0, HELD_S, per_service)))
    cases = [Case(service.port, size, model=service.name) for service in services]
    # In a process of their own: 900 clients would slow down the threads of paramiko here.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        answers = processes.submit(send, live.machine.address, cases * per_service)
        wait_for("all wait", lambda: answers.done() or _waiting(live) == count, 120.0)
        waiting, waiting_mib = _waiting(live), peak(live)
        live.configure(*SERVICES, Service("late", FIRST + 200))
        began = time.monotonic()
        for service in services:
            live.run(commands.switch(service.name, Slot.BLUE, "chat-1"))
        statuses = answers.result()
    print(
        f"{waiting} requests of {size} bytes waited, answers {dict(statuses)} within {time.monotonic() - began:.1f} s"
    )
    print(f"{waiting_mib:8.0f} MiB while they waited, {peak(live):.0f} MiB at most with the reload")
    live.run(commands.forget("late"))
    return count - statuses["HTTP/1.1 200 OK"], peak(live)


def send(address: str, cases: list[Case]) -> Counter[str]:
    """Send a request of every case at once. Returns the first lines of the answers, or errors."""
    return asyncio.run(_send_all(address, cases))


async def _send_all(address: str, cases: list[Case]) -> Counter[str]:
    requests = {case.port: _request(case) for case in cases}
    few = asyncio.Semaphore(50)  # the gateway closes a connection that sends no whole head within 5 s
    sending = (_send(address, case.port, requests[case.port], few) for case in cases)
    return Counter(await asyncio.gather(*sending))


def _waiting(live: Live) -> int:
    return sum(service.hold.waiting for service in live.facts.services.values() if service.hold)


def _request(case: Case) -> bytes:
    head = f"POST {case.path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(case.body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + case.body


async def _send(address: str, port: int, request: bytes, few: asyncio.Semaphore) -> str:
    try:
        async with few:
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(request[:PART])
            await writer.drain()
        sending = asyncio.ensure_future(_rest(writer, request))
        line = (await reader.readline()).strip()
        await reader.read()
        await sending
        writer.close()
    except OSError as error:
        return type(error).__name__
    return line.decode()


async def _rest(writer: asyncio.StreamWriter, request: bytes) -> None:
    view = memoryview(request)  # a client that buffered all of it 900 times would need more memory than the gateway
    for at in range(PART, len(request), PART):
        writer.write(view[at : at + PART])
        await writer.drain()


def peak(live: Live) -> float:
    """Return the highest memory of the gateway's container in MiB."""
    script = " || ".join(f"cat {file} 2>/dev/null" for file in PEAKS)
    return int(live.inside("sh", "-c", script)) / 2**20
