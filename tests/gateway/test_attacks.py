"""Attacks on a real HAProxy with the gateway's configuration: strangers without a key, and clients with one."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from sparkops.gateway.capacity import KIB, MEMORY_MIB, MIB, RESERVE_MIB, buffer_bytes
from sparkops.operator.build.gateway.files import Secrets
from tests.gateway.attacked import KEY, REPLY, Attacked, attacked, peak_mib, received, wait_for

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
def cleared(gateway: Attacked) -> Attacked:
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
    """Return 100 requests of one HTTP/2 connection that takes no byte of a reply, each with 60 KB of its body.

    The gateway refuses each of them itself, and keeps the body until its reply is taken.
    """
    window = frame(4, 0, 0, struct.pack(">HI", 4, 0))
    # HPACK without a table: literal names and values.
    fields = ((":method", "POST"), (":scheme", "http"), (":path", "/sleep"), (":authority", "x"))
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


def test_refusals_that_a_stranger_does_not_read_take_two_buffers_at_most(tmp_path: Path) -> None:
    """HAProxy stops to read from a client that takes no replies."""
    requests, count = post(LENGTH) * 3000, 200
    with attacked(tmp_path, secrets=Secrets((KEY,)), api_keys=["key"]) as gateway, ExitStack() as held:
        workers = gateway.workers()
        before = sum(map(peak_mib, workers))
        clients = [held.enter_context(gateway.connect()) for _ in range(count)]
        for client in clients:
            client.setblocking(False)
        for _ in range(20):
            for client in clients:
                with suppress(BlockingIOError):
                    client.send(requests)
            time.sleep(0.1)
        peak = sum(map(peak_mib, workers))
        assert gateway.status(post(LENGTH), source="127.0.0.9") == 401
    print(f"{count} connections that read nothing: {peak - before:.0f} MiB")
    assert peak - before < 2 * count * buffer_bytes(MEMORY_MIB) / MIB


@pytest.mark.parametrize("port", ["chat", "one"])
def test_http2_is_refused_on_every_port_and_by_every_way_in(cleared: Attacked, port: str) -> None:
    assert cleared.status(PREFACE + frame(4, 0, 0, b""), cleared.ports[port]) == 400
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAAAA")
    path = "/v1/chat/completions" if port == "chat" else "/chat/v1/chat/completions"
    assert cleared.status(post(*upgrade, LENGTH, path=path), cleared.ports[port]) == 200
    assert b"upgrade:" not in cleared.engine.received[-1].head.lower()


def test_http2_is_refused_on_the_sockets_of_haproxy(gateway: Attacked) -> None:
    for name, proxy in (("in.chat", b"PROXY UNKNOWN\r\n"), ("probe.sock", b"")):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(gateway.program.run / name))
            client.sendall(proxy + PREFACE + frame(4, 0, 0, b""))
            assert received(client).startswith(b"HTTP/1.1 400 ")


# What is forwarded


@pytest.mark.parametrize(
    "upgrade", [("Upgrade: h2c, websocket",), ("Upgrade: websocket", "Upgrade: h2c"), ("Upgrade: h2c",)]
)
def test_only_a_websocket_is_an_upgrade_and_only_where_engines_have_one(cleared: Attacked, upgrade: tuple[str]) -> None:
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    cleared.send(post("Connection: Upgrade", *upgrade, key, path="/v1/realtime", method="GET", body=b""))
    wait_for(lambda: cleared.engine.received)
    assert cleared.engine.received[0].head.lower().count(b"upgrade: ") == 1
    assert b"\r\nupgrade: websocket\r\n" in cleared.engine.received[0].head


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
def test_a_body_above_the_limit_is_refused_in_every_spelling_of_its_length(cleared: Attacked, length: str) -> None:
    for port in cleared.ports.values():
        reply = cleared.send(post(f"Content-Length: {length}"), port)
        assert int(reply.split()[1]) in (400, 413), reply  # 400 is HAProxy's own
    assert not cleared.engine.received


@pytest.mark.parametrize(
    "length", ["+2", "-2", "0x2", "2.0", "1e1", "", "2;2", "2 2", "2, 3", "2\r\nContent-Length: 3", "2\r\n 3", "\xb2"]
)
def test_a_length_that_is_no_number_is_refused(cleared: Attacked, length: str) -> None:
    assert cleared.status(post(f"Content-Length: {length}")) == 400
    assert not cleared.engine.received


@pytest.mark.parametrize("length", ["2", "02", "2, 2", "2\r\nContent-Length: 2", "\t2"])
def test_a_length_within_the_limit_reaches_the_engine_as_one_number(cleared: Attacked, length: str) -> None:
    assert cleared.status(post(f"Content-Length: {length}")) == 200
    wait_for(lambda: cleared.engine.received)
    assert cleared.engine.received[0].head.count(b"content-length: ") == 1
    assert cleared.engine.received[0].body == BODY


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
def test_an_engine_gets_no_request_that_the_gateway_has_not_checked(cleared: Attacked, request_: bytes) -> None:
    for port in cleared.ports.values():
        cleared.send(request_, port)
    for got in cleared.engine.received:
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
def test_path_and_headers_share_a_limit(cleared: Attacked, request_: bytes) -> None:
    assert cleared.status(request_) == 431
    assert not cleared.engine.received


def test_a_head_within_the_limit_reaches_the_engine_with_little_more(cleared: Attacked) -> None:
    request = post(LENGTH, f"X: {'x' * 7000}", path=f"/v1/chat/completions?q={'q' * 8000}")
    assert cleared.status(request) == 200
    wait_for(lambda: cleared.engine.received)
    assert len(cleared.engine.received[0].head) < HEAD + 200


@pytest.mark.parametrize("port", ["chat", "one"])
def test_headers_of_sparkops_are_the_gateways_own(cleared: Attacked, port: str) -> None:
    forged = ("x-sparkops-release: r", "X-Sparkops-Slot: green", "X-SPARKOPS-other: 1")
    path = "/v1/chat/completions" if port == "chat" else "/chat/v1/chat/completions"
    reply = cleared.send(post(LENGTH, "Connection: close", *forged, path=path), cleared.ports[port])

    assert b"\r\nx-sparkops-release: chat-1\r\nx-sparkops-slot: blue\r\n" in reply
    wait_for(lambda: cleared.engine.received)
    assert b"sparkops" not in cleared.engine.received[0].head.lower()


# Keys


AUTHORIZED = f"Authorization: Bearer {KEY}"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A gateway with a key and a certificate. Clients may be silent for three seconds, not for a minute."""
    directory = tmp_path_factory.mktemp("g")
    secrets = Secrets((KEY,), certificate(directory))
    with attacked(directory, secrets=secrets, change=impatient, api_keys=["key"], tls_certificate="tls.pem") as running:
        yield running


def impatient(text: str) -> str:
    return text.replace("  timeout client 60s\n", "  timeout client 3s\n")


def certificate(directory: Path) -> str:
    request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=gateway")
    files = ("-keyout", str(directory / "key"), "-out", str(directory / "crt"))
    subprocess.run(("openssl", *request, *files), check=True, capture_output=True)
    return (directory / "crt").read_text() + (directory / "key").read_text()


def encrypted(
    gateway: Attacked, *, alpn: tuple[str, ...] = (), tls: tuple[ssl.TLSVersion, str] | None = None
) -> ssl.SSLSocket:
    """Connect with TLS: of any version, or of one with these ciphers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols([*alpn])
    if tls:
        context.minimum_version = context.maximum_version = tls[0]
        context.set_ciphers(tls[1])
    return context.wrap_socket(gateway.connect())


def answer(connection: ssl.SSLSocket, *headers: str) -> bytes:
    connection.sendall(post(LENGTH, "Connection: close", *headers))
    return received(connection)


def test_with_tls_a_client_gets_http_1_1_and_nothing_else(guarded: Attacked) -> None:
    for offered in (("h2", "http/1.1"), ("http/1.1",), ()):
        with encrypted(guarded, alpn=offered) as client:
            assert client.selected_alpn_protocol() == ("http/1.1" if offered else None)
            assert answer(client, AUTHORIZED).startswith(b"HTTP/1.1 200 ")
    with encrypted(guarded, alpn=("h2",)) as client:
        client.sendall(PREFACE + frame(4, 0, 0, b""))
        assert received(client).startswith(b"HTTP/1.1 400 ")


V1_2, V1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the versions that must fail
@pytest.mark.parametrize(
    ("version", "ciphers"),
    [
        (ssl.TLSVersion.TLSv1, "ALL:@SECLEVEL=0"),
        (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0"),
        (V1_2, "ECDHE-ECDSA-AES128-SHA"),
        (V1_2, "ECDHE-ECDSA-AES256-SHA384"),
        (V1_2, "AES128-GCM-SHA256"),
        (V1_2, "aNULL:@SECLEVEL=0"),
    ],
)
def test_old_tls_and_weak_ciphers_are_refused(guarded: Attacked, version: ssl.TLSVersion, ciphers: str) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        encrypted(guarded, tls=(version, ciphers))
    with encrypted(guarded, tls=(V1_2, "ECDHE+AESGCM")) as client:
        assert client.version() == "TLSv1.2"
    with encrypted(guarded, tls=(V1_3, "ALL")) as client:
        assert client.version() == "TLSv1.3"


def test_a_client_cannot_negotiate_a_connection_again(guarded: Attacked) -> None:
    argv = ("openssl", "s_client", "-connect", f"127.0.0.1:{guarded.port}", "-tls1_2")
    ran = subprocess.run(argv, input=b"R\n", capture_output=True, check=False, timeout=60)
    assert b"RENEGOTIATING" in ran.stderr
    assert b"no renegotiation" in ran.stderr


def test_handshakes_that_stop_are_closed_and_others_keep_no_client_out(guarded: Attacked) -> None:
    """Before `timeout client 60s` a connection without a handshake stayed for 20 minutes."""
    with ExitStack() as held:
        silent = [held.enter_context(guarded.connect()) for _ in range(100)]
        for client in silent[::2]:
            client.sendall(bytes.fromhex("1603010200010001fc0303"))  # the begin of a handshake
        ended = threading.Event()

        def flood() -> None:
            while not ended.is_set():
                encrypted(guarded).close()

        threads = [threading.Thread(target=flood) for _ in range(4)]
        for thread in threads:
            thread.start()
        replies = [answer(held.enter_context(encrypted(guarded)), AUTHORIZED) for _ in range(10)]
        ended.set()
        for thread in threads:
            thread.join()
        assert all(reply.startswith(b"HTTP/1.1 200 ") for reply in replies)
        assert [received(client) for client in silent] == [b""] * 100


def test_an_engine_may_pause_for_longer_than_a_client(guarded: Attacked) -> None:
    guarded.engine.pauses_s = 5.0  # the client has three seconds
    try:
        with encrypted(guarded) as client:
            client.sendall(post(LENGTH, "Connection: close", AUTHORIZED))
            assert received(client, 60.0).endswith(b"\r\n\r\n{}")
    finally:
        guarded.engine.pauses_s = 0.0


def test_a_key_that_is_removed_admits_no_request_more(tmp_path: Path) -> None:
    """A request that waits was admitted before: it proceeds, as one does that an engine answers already."""
    other = "sk-other-0123456789abcdef"
    with attacked(tmp_path, secrets=Secrets((KEY, other)), api_keys=["key"]) as gateway:
        assert gateway.program.call("hold", "chat", "1.2", "60", "540", "500").returncode == 0
        with gateway.connect() as held:
            held.sendall(post(LENGTH, "Connection: close", AUTHORIZED))
            wait_for(lambda: gateway.program.shown()["room"]["chat"]["waiting_requests"] == 1)
            keys = (gateway.program.state / "keys").read_text().splitlines(keepends=True)
            kept = [line for line in keys if line.strip().lower() == sha256(other)]
            assert gateway.program.call("configure", stdin=json.dumps({"keys": "".join(kept)}) + "\n").returncode == 0
            wait_for(lambda: gateway.status(post(LENGTH, AUTHORIZED)) == 401)
            assert (
                gateway.program.call("point", "chat", "green", "chat-2", f"127.0.0.1:{gateway.engine.port}").returncode
                == 0
            )
            assert gateway.program.call("switch", "chat", "green", "chat-2").returncode == 0
            reply = received(held, 60.0)
        assert b"\r\nx-sparkops-release: chat-2\r\nx-sparkops-slot: green\r\n" in reply
        assert gateway.status(post(LENGTH, AUTHORIZED)) == 401
        assert gateway.status(post(LENGTH, f"Authorization: Bearer {other}")) == 200


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_network_of_ipv6_addresses_is_one_client_and_ipv4_addresses_are_not(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("needs IPv6")
    with attacked(tmp_path, address="fd00::1", client_requests=10) as gateway:
        with socket.create_connection(("::1", gateway.port), 60) as client:
            client.sendall(post(LENGTH, "Connection: close"))
            assert received(client).startswith(b"HTTP/1.1 200 ")
        for number in range(5, 20):
            assert gateway.status(post(LENGTH, "Connection: close"), source=f"127.0.0.{number}") == 200
        table = haproxy_table(gateway)
    assert {f"::ffff:127.0.0.{number}" for number in range(5, 20)} < table
    assert table - {f"::ffff:127.0.0.{number}" for number in range(1, 20)} == {"::"}, "the network of ::1"


def haproxy_table(gateway: Attacked) -> set[str]:
    """Return the clients that HAProxy counts."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(gateway.program.run / "admin.sock"))
        asking.sendall(b"show table fe_chat\n")
        return set(re.findall(r" key=(\S+)", received(asking).decode()))


def test_half_requests_of_one_address_and_of_four_keep_no_other_out(gateway: Attacked) -> None:
    half = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n"
    with served_meanwhile(gateway) as statuses, ExitStack() as held:
        for number in range(1200):
            with suppress(ConnectionError):  # closed above the limit of an address
                client = held.enter_context(gateway.connect(source=f"127.0.0.{20 + number % 4 * (number % 2)}"))
                client.sendall(half)
        enough = len(statuses) + 5
        wait_for(lambda: len(statuses) >= enough)
    assert set(statuses) == {200}


# The log, and rates


@pytest.mark.parametrize(
    "malformed",
    [
        b"GET /" + b"a" * 8000 + b"\x01 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : g\r\n\r\n",
        b"GET /v1/\x1b[2J HTTP/1.1\r\n\r\n",
        b"no HTTP\r\n\r\n",
    ],
)
def test_malformed_requests_are_not_in_the_log_and_their_number_is_limited(tmp_path: Path, malformed: bytes) -> None:
    """One address filled the 100 MB that are kept in two minutes."""
    log, stranger = tmp_path / "log", "127.0.0.9"
    with attacked(tmp_path, log=log, client_requests=10) as gateway:
        for _ in range(5):
            assert gateway.status(malformed, source=stranger) == 400
        assert gateway.program.call("switch", "chat", "down").returncode == 0
        assert gateway.status(post(LENGTH, "Connection: close")) == 503
        wait_for(lambda: b"127.0.0.1 fe_chat be_down/" in log.read_bytes())
        assert stranger.encode() not in log.read_bytes()

        wait_for(lambda: gateway.status(malformed, source=stranger) == 0)
        assert gateway.status(post(LENGTH, "Connection: close"), source="127.0.0.10") == 503


# Pages in a browser

ORIGIN = "https://chat.lan:3000"
CORS = (b"access-control-allow-origin: *", b"access-control-allow-credentials: true")


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A gateway without keys, for pages of one site. Its engine allows all pages everything, as vLLM does."""
    with attacked(tmp_path_factory.mktemp("g"), browser_origins=[ORIGIN]) as running:
        running.engine.reply = REPLY.replace(b"\r\n\r\n", b"\r\n" + b"\r\n".join(CORS) + b"\r\n\r\n")
        yield running


@pytest.mark.parametrize("port", ["chat", "one"])
@pytest.mark.parametrize(
    "lines",
    [
        ("Origin: https://evil.example", "Content-Type: text/plain", LENGTH),
        ("Origin: http://gateway", LENGTH),
        ("Origin: null", LENGTH),
        (f"Origin: {ORIGIN}.evil.example", LENGTH),
        ("Origin:", LENGTH),
    ],
    ids=["simple request", "DNS rebinding", "sandboxed frame", "longer name", "empty"],
)
def test_a_page_of_another_site_gets_nothing_from_an_engine(browsed: Attacked, port: str, lines: tuple[str]) -> None:
    """It used services of a gateway without keys, by the browser of anybody in the LAN."""
    browsed.engine.received.clear()
    path = "/chat/v1/chat/completions" if port == "one" else "/v1/chat/completions"
    reply = browsed.send(post("Connection: close", *lines, path=path), browsed.ports[port])

    assert reply.startswith(b"HTTP/1.1 403 ")
    assert b"access-control-" not in reply
    assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "origin_not_allowed"
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    foreign = ("Connection: Upgrade", "Upgrade: websocket", key, "Origin: https://evil.example")
    assert browsed.status(post(*foreign, path="/v1/realtime", method="GET", body=b""), browsed.port) == 403
    asked = ("Origin: https://evil.example", "Access-Control-Request-Method: POST")
    preflight = browsed.send(post(*asked, method="OPTIONS", body=b""), browsed.port)
    assert preflight.startswith(b"HTTP/1.1 403 ")
    assert b"access-control-" not in preflight
    assert not browsed.engine.received


@pytest.mark.parametrize("port", ["chat", "one"])
def test_a_page_of_a_named_site_may_call_a_service(browsed: Attacked, port: str) -> None:
    path = "/chat/v1/chat/completions" if port == "one" else "/v1/chat/completions"
    allowed = f"\r\naccess-control-allow-origin: {ORIGIN}\r\n".encode()
    asked = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type")
    preflight = browsed.send(
        post(f"Origin: {ORIGIN}", *asked, path=path, method="OPTIONS", body=b""), browsed.ports[port]
    )
    assert preflight.startswith(b"HTTP/1.1 204 ")
    assert allowed in preflight
    assert b"\r\naccess-control-allow-headers: authorization,content-type\r\n" in preflight
    assert not [got for got in browsed.engine.received if got.head.startswith(b"OPTIONS")]

    reply = browsed.send(post("Connection: close", f"Origin: {ORIGIN}", LENGTH, path=path), browsed.ports[port])
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert allowed in reply
    assert b"\r\nvary: origin\r\n" in reply
    assert b"access-control-allow-credentials" not in reply
    refused = browsed.send(post("Connection: close", f"Origin: {ORIGIN}", path="/sleep"), browsed.port)
    assert refused.startswith(b"HTTP/1.1 404 ")
    assert allowed in refused


def test_a_client_that_is_no_browser_needs_no_origin_and_gets_no_headers_for_pages(browsed: Attacked) -> None:
    reply = browsed.send(post("Connection: close", LENGTH))

    assert reply.startswith(b"HTTP/1.1 200 ")
    assert b"access-control-" not in reply
