"""Attacks on a real HAProxy with the gateway's configuration: strangers without a key, and clients with one."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from sparkops.gateway.capacity import CONNECTIONS, KIB, MEMORY_MIB, MIB, RESERVE_MIB, buffer_bytes
from sparkops.gateway.files import Secrets
from tests.gateway.attacked import KEY, Attacked, attacked, peak_mib, received, wait_for

pytestmark = pytest.mark.local

BODY = b"{}"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LIMIT = 32 * MIB  # `gateway.max_body_mib`
HEAD = 16 * KIB
CONNECTED, STREAMS, DATA = 250, 100, 60_000


def post(*lines: str, body: bytes = BODY, path: str = "/v1/chat/completions", method: str = "POST") -> bytes:
    """Return a request with these header lines."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: gateway", *lines, "", "")).encode("latin-1") + body


LENGTH = f"Content-Length: {len(BODY)}"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A gateway without keys or certificate: its service has a port, and the one address reaches it too."""
    with attacked(tmp_path_factory.mktemp("g")) as running:
        yield running


@pytest.fixture
def seen(gateway: Attacked) -> Attacked:
    gateway.engine.received.clear()
    return gateway


@contextmanager
def served_meanwhile(gateway: Attacked, *headers: str, source: str = "127.0.0.9") -> Iterator[list[int]]:
    """Send requests of another client, one after another. Yields their statuses."""
    statuses: list[int] = []
    ended = threading.Event()

    def send() -> None:
        while not ended.wait(0.02):
            statuses.append(gateway.status(post(LENGTH, "Connection: close", *headers), source=source))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield statuses
    finally:
        ended.set()
        sending.join()


# Memory


def frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return struct.pack(">I", len(data))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + data


def h2_flood() -> bytes:
    """Return 100 requests of one HTTP/2 connection that takes no byte of a reply, each with 60 KB of its body."""
    window = frame(4, 0, 0, struct.pack(">HI", 4, 0))
    # HPACK without a table: literal names and values.
    fields = ((":method", "POST"), (":scheme", "http"), (":path", "/v1/chat/completions"), (":authority", "x"))
    head = b"".join(
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in (*fields, ("content-length", "200000"))
    )
    sent = [PREFACE, window, frame(8, 0, 0, struct.pack(">I", 2**30))]
    for number in range(STREAMS):
        stream = 2 * number + 1
        parts = [frame(0, 0, stream, bytes(size)) for size in (16384, 16384, 16384, DATA - 3 * 16384)]
        sent += [frame(1, 4, stream, head), *parts]
    return b"".join(sent)


def bound_mib(connections: int) -> float:
    """Return the memory of HAProxy's buffers for so many connections, and half of what is beside them."""
    return (2 * connections * buffer_bytes(MEMORY_MIB) / MIB) + RESERVE_MIB / 2


def test_http2_without_tls_takes_no_memory_and_fails_no_request_of_others(gateway: Attacked) -> None:
    """Before `option disable-h2-upgrade` 214 such connections took all memory of the container."""
    flood, workers = h2_flood(), gateway.workers()
    with served_meanwhile(gateway) as statuses, ExitStack() as held:
        for number in range(CONNECTED):
            client = held.enter_context(gateway.connect(source=f"127.0.0.{10 + number % 4}"))
            client.settimeout(0.2)
            with suppress(OSError):
                client.sendall(flood)
            assert sum(map(peak_mib, workers)) < MEMORY_MIB, f"after {number + 1} connections"
        peak = sum(map(peak_mib, workers))
        enough = len(statuses) + 5
        wait_for(lambda: len(statuses) >= enough)
    print(f"{CONNECTED} connections x {STREAMS} streams: {peak:.0f} MiB at most, limit {MEMORY_MIB} MiB")

    assert gateway.workers() == workers
    assert peak < bound_mib(CONNECTED)
    assert set(statuses) == {200}


@pytest.mark.parametrize("port", ["chat", "one"])
def test_http2_is_refused_on_every_port_and_by_every_way_in(seen: Attacked, port: str) -> None:
    assert seen.status(PREFACE + frame(4, 0, 0, b""), seen.ports[port]) == 400
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAAAA")
    path = "/v1/chat/completions" if port == "chat" else "/chat/v1/chat/completions"
    assert seen.status(post(*upgrade, LENGTH, path=path), seen.ports[port]) == 200
    assert b"upgrade:" not in seen.engine.received[-1].head.lower()


def test_http2_is_refused_on_the_sockets_of_haproxy(gateway: Attacked) -> None:
    for name in ("in.chat",):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(gateway.program.run / name))
            client.sendall(b"PROXY UNKNOWN\r\n" + PREFACE + frame(4, 0, 0, b""))
            assert received(client).startswith(b"HTTP/1.1 400 ")


# What is forwarded


@pytest.mark.parametrize(
    "upgrade", [("Upgrade: h2c, websocket",), ("Upgrade: websocket", "Upgrade: h2c"), ("Upgrade: h2c",)]
)
def test_only_a_websocket_is_an_upgrade_and_only_where_engines_have_one(seen: Attacked, upgrade: tuple[str]) -> None:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    seen.send(post("Connection: Upgrade", *upgrade, key, path="/v1/realtime", method="GET", body=b""))
    wait_for(lambda: seen.engine.received)
    assert seen.engine.received[0].head.lower().count(b"upgrade: ") == 1
    assert b"\r\nupgrade: websocket\r\n" in seen.engine.received[0].head


@pytest.mark.parametrize(
    "length",
    [
        f"{LIMIT + 1}",
        f"0{LIMIT + 1}",
        f"{LIMIT + 1:030}",
        f"{LIMIT + 1}, {LIMIT + 1}",
        f"{LIMIT + 1}\r\nContent-Length: {LIMIT + 1}",
        *(str(number) for bits in (31, 32, 63, 64) for number in (2**bits - 1, 2**bits, 2**bits + 1)),
        str(10**10),
        str(10**100),
    ],
)
def test_a_body_above_the_limit_is_refused_in_every_spelling_of_its_length(seen: Attacked, length: str) -> None:
    for port in seen.ports.values():
        reply = seen.send(post(f"Content-Length: {length}"), port)
        assert int(reply.split()[1]) in (400, 413), reply  # 400 is HAProxy's own
    assert not seen.engine.received


@pytest.mark.parametrize(
    "length", ["+2", "-2", "0x2", "2.0", "1e1", "", "2;2", "2 2", "2, 3", "2\r\nContent-Length: 3", "2\r\n 3", "\xb2"]
)
def test_a_length_that_is_no_number_is_refused(seen: Attacked, length: str) -> None:
    assert seen.status(post(f"Content-Length: {length}")) == 400
    assert not seen.engine.received


@pytest.mark.parametrize("length", ["2", "02", "2, 2", "2\r\nContent-Length: 2", "\t2"])
def test_a_length_within_the_limit_reaches_the_engine_as_one_number(seen: Attacked, length: str) -> None:
    assert seen.status(post(f"Content-Length: {length}")) == 200
    wait_for(lambda: seen.engine.received)
    assert seen.engine.received[0].head.count(b"content-length: ") == 1
    assert seen.engine.received[0].body == BODY


SMUGGLED = post(LENGTH, path="/sleep")
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        post("Content-Length: 4", "Transfer-Encoding: chunked", body=CHUNKS + SMUGGLED),
        post("Transfer-Encoding: chunked", f"Content-Length: {len(CHUNKS + SMUGGLED)}", body=CHUNKS + SMUGGLED),
        post("Transfer-Encoding: xchunked", body=CHUNKS + SMUGGLED),
        post("Transfer-Encoding: chunked, chunked", body=CHUNKS + SMUGGLED),
        post("Transfer-Encoding: chunked, identity", body=CHUNKS + SMUGGLED),
        post("Transfer-Encoding:\x0bchunked", body=CHUNKS + SMUGGLED),
        post("Transfer-Encoding : chunked", body=CHUNKS + SMUGGLED),
        post("Transfer-Encoding: identity", LENGTH, body=BODY + SMUGGLED),
        post("Transfer-Encoding: chunked", body=b'2;x="\r\n"\r\n{}\r\n0\r\n\r\n' + SMUGGLED),
        post("Transfer-Encoding: chunked", body=b"10000000000000002\r\n{}\r\n0\r\n\r\n" + SMUGGLED),
        post(f"Content-Length: {2**64 + 2}", body=BODY + SMUGGLED),
        post("Content-Length: 2\r\nContent-Length: 0", body=BODY + SMUGGLED),
        post(f"X: y\n{SMUGGLED.decode()}", LENGTH),
        post(f"X: y\r{SMUGGLED.decode()}", LENGTH),
        post(LENGTH, body=BODY + SMUGGLED),
    ],
)
def test_an_engine_gets_no_request_that_the_gateway_has_not_checked(seen: Attacked, request_: bytes) -> None:
    for port in seen.ports.values():
        seen.send(request_, port)
    for got in seen.engine.received:
        assert got.path == "/v1/chat/completions"
        assert (got.body, got.after) == (BODY, b"")


@pytest.mark.parametrize(
    "request_",
    [
        post(LENGTH, path=f"/v1/chat/completions?q={'q' * 100_000}"),
        post(LENGTH, path=f"/v1/models/{'m' * HEAD}"),
        post(LENGTH, method="P" * HEAD),
        post(LENGTH, f"X: {'x' * HEAD}"),
        post(LENGTH, *(f"X{number}: {'x' * 200}" for number in range(90))),
        post(LENGTH, f"X: {'x' * 8000}", path=f"/v1/chat/completions?q={'q' * 9000}"),
    ],
    ids=["query", "path", "method", "header", "headers", "both"],
)
def test_path_and_headers_share_a_limit(seen: Attacked, request_: bytes) -> None:
    assert seen.status(request_) == 431
    assert not seen.engine.received


def test_a_head_within_the_limit_reaches_the_engine_with_little_more(seen: Attacked) -> None:
    request = post(LENGTH, f"X: {'x' * 7000}", path=f"/v1/chat/completions?q={'q' * 8000}")
    assert seen.status(request) == 200
    wait_for(lambda: seen.engine.received)
    assert len(seen.engine.received[0].head) < HEAD + 200


@pytest.mark.parametrize("port", ["chat", "one"])
def test_headers_of_sparkops_are_the_gateways_own(seen: Attacked, port: str) -> None:
    forged = ("x-sparkops-release: r", "X-Sparkops-Slot: green", "x-sparkops-preview: x", "X-SPARKOPS-other: 1")
    path = "/v1/chat/completions" if port == "chat" else "/chat/v1/chat/completions"
    reply = seen.send(post(LENGTH, "Connection: close", *forged, path=path), seen.ports[port])

    assert b"\r\nx-sparkops-release: chat-1\r\nx-sparkops-slot: blue\r\n" in reply
    wait_for(lambda: seen.engine.received)
    assert b"sparkops" not in seen.engine.received[0].head.lower()
