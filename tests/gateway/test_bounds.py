"""Requests that wait in a real HAProxy and its waiting room: what serves lacks neither connections nor memory."""

from __future__ import annotations

import json
import resource
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sparkops.gateway.capacity import LARGEST_MIB, WAITING, buffer_bytes
from tests.gateway.attacked import Attacked, attacked, received, wait_for

pytestmark = pytest.mark.local

MB, MIB = 10**6, 2**20
CLIENT, OTHER = "127.0.0.77", "127.0.0.78"
UNAVAILABLE = "503 unavailable, with Retry-After"


def post(model: str, size: int = 0, *, last: bool = True) -> bytes:
    fields = {"messages": "x" * size, "model": model}
    body = json.dumps(fields if last else dict(reversed(fields.items()))).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def outcome(reply: bytes) -> str:
    """Return the status of a reply, with what a refusal must have."""
    head, _, body = reply.partition(b"\r\n\r\n")
    if not reply:
        return "closed without a reply"
    status = head.split()[1].decode()
    if status == "503":
        error = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return f"503 {error['code']}" + (", with Retry-After" if b"\r\nretry-after: " in head.lower() else "")
    return status


class Clients:
    """Requests that are open at once. Each reads while it sends, as a careful client."""

    def __init__(self, gateway: Attacked, stack: ExitStack) -> None:
        self.gateway, self.stack = gateway, stack
        self.outcomes: list[str] = []
        self.threads: list[threading.Thread] = []

    def send(self, data: bytes, source: str = CLIENT, port: int = 0) -> None:
        connection = self.stack.enter_context(self.gateway.connect(port or self.gateway.ports["one"], source))

        def ask() -> None:
            sending = threading.Thread(target=_send, args=(connection, data))
            sending.start()
            self.outcomes.append(outcome(received(connection, 1.0, 120.0)))
            sending.join()

        self.threads.append(threading.Thread(target=ask))
        self.threads[-1].start()

    def ended(self) -> Counter[str]:
        for thread in self.threads:
            thread.join()
        return Counter(self.outcomes)


def _send(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        connection.sendall(data)


@pytest.fixture(autouse=True)
def descriptors() -> Iterator[None]:
    """Clients and engine are this process: at 900 requests it needs more than the 1,024 that are usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as closed:
        yield closed


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Attacked]:
    with attacked(tmp_path, services=("agent", "chat", "embed")) as running:
        yield running


def hold(gateway: Attacked, *services: str, most: int = 500) -> None:
    for service in services:
        assert gateway.program.call("hold", service, "1.2", "300", "540", str(most)).returncode == 0


def release(gateway: Attacked, *services: str) -> None:
    for service in services:
        assert gateway.program.call("switch", service, "blue", "chat-1").returncode == 0


def waiting(gateway: Attacked) -> dict[str, int]:
    room = gateway.program.shown()["room"]
    return {name: int(figures["waiting_requests"]) for name, figures in room.items() if figures["waiting_requests"]}


def wait_in(gateway: Attacked, stack: ExitStack, model: str, sources: list[str], count: int) -> list[socket.socket]:
    """Send requests that wait, without a thread for each."""
    data, one = post(model), gateway.ports["one"]
    opened = []
    for number in range(count):
        opened.append(stack.enter_context(gateway.connect(one, sources[number % len(sources)])))
        opened[-1].sendall(data)
    return opened


def test_900_requests_of_one_client_that_wait_lock_it_out_of_nothing_else(gateway: Attacked, stack: ExitStack) -> None:
    """At 256 the next connection was closed, also one for a service that serves."""
    hold(gateway, "chat", most=900)
    held = wait_in(gateway, stack, "chat", [CLIENT], 900)
    wait_for(lambda: waiting(gateway) == {"chat": 900})

    assert gateway.status(post("embed"), gateway.ports["one"], CLIENT) == 200
    assert gateway.status(post("embed"), gateway.ports["embed"], CLIENT) == 200
    assert gateway.status(post("embed", 4 * MB), gateway.ports["one"], CLIENT) == 200
    assert gateway.status(post("embed"), gateway.ports["one"], OTHER) == 200
    assert outcome(gateway.send(post("chat"), gateway.ports["one"], CLIENT)) == UNAVAILABLE
    assert outcome(gateway.send(post("chat"), gateway.ports["one"], OTHER)) == UNAVAILABLE  # beyond `hold_max`
    release(gateway, "chat")
    assert Counter(outcome(received(connection, 1.0, 60.0)) for connection in held) == {"200": 900}


def test_900_requests_for_two_services_that_wait_keep_nobody_from_a_third(gateway: Attacked, stack: ExitStack) -> None:
    """At 900 the one address took no connection more: clients of the third service hung."""
    hold(gateway, "agent", "chat")
    clients = [f"127.0.1.{number}" for number in range(1, 100)]
    held = [*wait_in(gateway, stack, "chat", clients, 450), *wait_in(gateway, stack, "agent", clients, 450)]
    wait_for(lambda: waiting(gateway) == {"agent": 450, "chat": 450})

    assert gateway.status(post("embed"), gateway.ports["one"], OTHER) == 200
    for path in (b"/health", b"/v1/models"):
        assert gateway.status(b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n" % path, gateway.ports["one"], OTHER) == 200
    release(gateway, "agent", "chat")
    assert Counter(outcome(received(connection, 1.0, 60.0)) for connection in held) == {"200": 900}


def test_a_client_leaves_places_for_the_requests_of_others(gateway: Attacked, stack: ExitStack) -> None:
    hold(gateway, "agent", "chat", most=900)
    wait_in(gateway, stack, "chat", [CLIENT], WAITING // 2)
    wait_for(lambda: waiting(gateway) == {"chat": WAITING // 2})

    assert outcome(gateway.send(post("agent"), gateway.ports["one"], CLIENT)) == UNAVAILABLE
    wait_in(gateway, stack, "agent", [OTHER], 1)
    wait_for(lambda: waiting(gateway) == {"agent": 1, "chat": WAITING // 2})


@pytest.mark.parametrize("port", ["one", "embed"])
def test_connections_that_do_not_wait_are_bounded_as_before(tmp_path: Path, stack: ExitStack, port: str) -> None:
    with attacked(tmp_path, services=("chat", "embed"), client_connections=20) as gateway:
        hold(gateway, "chat")
        wait_in(gateway, stack, "chat", [CLIENT], 40)
        wait_for(lambda: waiting(gateway) == {"chat": 40})
        assert gateway.status(post("embed"), gateway.ports["one"], CLIENT) == 200
        silent = []
        for _ in range(30):
            with suppress(ConnectionError):  # closed before Python knows of its success
                silent.append(stack.enter_context(gateway.connect(gateway.ports[port], CLIENT)))

        assert gateway.status(post("embed"), gateway.ports[port], OTHER) == 200
        assert sum(bool(received(connection, 1.0)) for connection in silent) <= 20  # each gets 408 after 5 s


def test_large_requests_that_wait_leave_memory_to_services_that_serve(gateway: Attacked, stack: ExitStack) -> None:
    """They kept the 128 MiB of all: after 10 s others got 503, for as long as the swap lasted."""
    hold(gateway, "chat")
    clients = Clients(gateway, stack)
    for _ in range(40):
        clients.send(post("chat", 4 * MB))
    each = buffer_bytes(1536) + 4 * MB
    fitting = WAITING * buffer_bytes(1536) // 2 // each
    wait_for(lambda: waiting(gateway) == {"chat": fitting} and len(clients.outcomes) == 40 - fitting)

    assert set(clients.outcomes) == {UNAVAILABLE}
    assert gateway.status(post("embed", LARGEST_MIB * MIB // 2), gateway.ports["one"], CLIENT) == 200
    assert gateway.status(post("embed", LARGEST_MIB * MIB // 2), gateway.ports["one"], OTHER) == 200
    clients.send(post("chat", 4 * MB), OTHER)
    wait_for(lambda: waiting(gateway) == {"chat": fitting + 1})
    release(gateway, "chat")
    assert clients.ended() == {"200": fitting + 1, UNAVAILABLE: 40 - fitting}


def test_many_large_requests_that_wait_lock_their_client_out_of_nothing_else(
    gateway: Attacked, stack: ExitStack
) -> None:
    """More than one client may have with the process that reads them, and more connections than it may have."""
    hold(gateway, "chat")
    clients = Clients(gateway, stack)
    for number in range(300):
        clients.send(post("chat", 100_000))
        if number % 50 == 49:
            wait_for(lambda: waiting(gateway) == {"chat": len(clients.threads)})

    assert gateway.status(post("embed", MB), gateway.ports["one"], CLIENT) == 200
    assert gateway.status(post("embed"), gateway.ports["one"], CLIENT) == 200
    release(gateway, "chat")
    assert clients.ended() == {"200": 300}


def test_large_and_small_requests_wait_through_a_reload_for_a_release_that_was_pointed_after_it(
    gateway: Attacked, stack: ExitStack
) -> None:
    hold(gateway, "chat")
    clients = Clients(gateway, stack)

    def wait_on_both_ports() -> None:
        for size in (1_000, MB):
            for port in ("one", "chat"):
                clients.send(post("chat", size), port=gateway.ports[port])
        wait_for(lambda: waiting(gateway) == {"chat": len(clients.threads)})

    wait_on_both_ports()
    add_service(gateway)
    wait_on_both_ports()
    switch_to_green(gateway)

    assert clients.ended() == {"200": 8}
    wait_for(lambda: len(gateway.workers()) == 1)


def add_service(gateway: Attacked) -> None:
    """Reload HAProxy: a service without a port of its own is deployed for the first time."""
    text = (gateway.program.state / "services/embed.cfg").read_text().replace("embed", "other")
    added = {"services/other.cfg": text[text.index("backend be_other_wait") :]}
    done = gateway.program.call("configure", stdin=json.dumps(added) + "\n")
    assert done.stdout.strip() == "configured", done.stderr
    assert len(gateway.workers()) == 2


def switch_to_green(gateway: Attacked) -> None:
    engine = f"127.0.0.1:{gateway.engine.port}"
    assert gateway.program.call("point", "chat", "green", "chat-2", engine).returncode == 0
    assert gateway.program.call("switch", "chat", "green", "chat-2").returncode == 0


@pytest.mark.parametrize("size", [1_000, MB])
@pytest.mark.parametrize("port", ["one", "chat"])
def test_a_start_that_fails_is_answered_with_503_whatever_the_size(
    gateway: Attacked, stack: ExitStack, port: str, size: int
) -> None:
    """HAProxy replies before it has read the body: half of the large requests got a reset."""
    hold(gateway, "chat")
    clients = Clients(gateway, stack)
    for _ in range(12):
        clients.send(post("chat", size), port=gateway.ports[port])
    wait_for(lambda: waiting(gateway) == {"chat": 12})
    assert gateway.program.call("switch", "chat", "down").returncode == 0

    assert clients.ended() == {UNAVAILABLE: 12}


@pytest.mark.parametrize("last", [False, True], ids=["model first", "model last"])
@pytest.mark.parametrize("port", ["one", "chat"])
def test_large_requests_to_a_service_that_is_down_get_503(
    gateway: Attacked, stack: ExitStack, port: str, last: bool
) -> None:
    assert gateway.program.call("switch", "chat", "down").returncode == 0
    clients = Clients(gateway, stack)
    for _ in range(12):
        clients.send(post("chat", MB, last=last), port=gateway.ports[port])

    assert clients.ended() == {UNAVAILABLE: 12}


def test_a_kept_connection_reaches_a_release_that_was_pointed_after_a_reload(gateway: Attacked) -> None:
    """The old worker answers it once more; it never got the servers of the slot."""
    client = HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    assert _ask(client) == (200, "chat-1")
    add_service(gateway)
    switch_to_green(gateway)

    assert _ask(client) == (200, "chat-2")
    client.close()


def _ask(client: HTTPConnection) -> tuple[int, str | None]:
    client.request("POST", "/v1/chat/completions", json.dumps({"model": "chat"}), {"Content-Type": "application/json"})
    reply = client.getresponse()
    reply.read()
    return reply.status, reply.headers.get("x-sparkops-release")
