"""What a client of a real gateway cannot do: reach an engine's other routes, or take what others need."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.gateway.capacity import MEMORY_MIB
from sparkops.gateway.files import Secrets
from sparkops.gateway.image import Service
from sparkops.release import Slot
from tests.fleet import shell
from tests.gateway.live import CHAT, METRICS, PORT, SERVED_BY, Answer, Live, is_documented_refusal, wait_for

pytestmark = pytest.mark.fleet

BLUE = Slot.BLUE
KEY = "sk-valid-0123456789abcdef"
HALF_REQUESTS = Path(__file__).with_name("half_requests.py")
FETCH = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{METRICS}/metrics', timeout=2).status)"
ASK_FROM_THERE = """\
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5, ("127.0.0.2", 0)) as client:
        client.sendall(b"GET /v1/models HTTP/1.0\\r\\n\\r\\n")
        print(client.makefile().read())
except OSError as error:
    print(error)
"""
LIMIT = 2**20  # bytes; max_body_mib of these tests is 1
UNMEASURED = 96 * 1024  # bytes of a body without Content-Length


@contextmanager
def half_requests(live: Live, count: int, addresses: int = 1) -> Iterator[int]:
    """Hold half requests from addresses of the node itself. Yields how many connections were made."""
    script = HALF_REQUESTS.read_text()
    words = ("exec", "-i", live.machine.container, "python3", "-c", script, *map(str, (PORT, count, addresses)))
    with subprocess.Popen([shell.client(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        yield int(process.stdout.readline())
        process.stdin.close()


def settings(live: Live, **changes: object) -> None:
    live.gateway = Gateway.model_validate({"node": "n", "metrics_port": METRICS, "api_keys": ["key"], **changes})
    live.secrets = Secrets((KEY,))
    live.configure()


def send(live: Live, body: bytes, *, chunked: bool, close_early: bool = False) -> Answer:
    """Send a body of JSON, whole or in chunks. Closing early ends the body after what the gateway may refuse."""
    connection = HTTPConnection(live.machine.address, PORT, timeout=30)
    connection.putrequest("POST", "/v1/completions")
    connection.putheader("Authorization", f"Bearer {KEY}")
    connection.putheader(*("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body))))
    connection.endheaders()
    if chunked:
        connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
    elif not close_early:
        connection.send(body)
    answer = Answer.of(connection.getresponse())
    connection.close()
    return answer


def padded(size: int) -> bytes:
    """A JSON body of `size` bytes."""
    empty = len(json.dumps({"prompt": ""}))
    return json.dumps({"prompt": "x" * (size - empty)}).encode()


def test_half_requests_without_a_key_lock_out_neither_a_client_with_one_nor_the_metrics(live: Live) -> None:
    settings(live)
    with half_requests(live, 4100):
        began = time.monotonic()
        assert live.ask(authorization=f"Bearer {KEY}").served_by == SERVED_BY[BLUE]
        assert live.inside("python3", "-c", FETCH) == "200"
        assert time.monotonic() - began < 3

        def no_longer_full() -> bool:
            """Half a request is closed after 5 s, so its address is served again while it still tries."""
            return "Bearer" in live.machine.exec("python3", "-c", ASK_FROM_THERE, str(PORT))

        wait_for("the same address", no_longer_full, within_s=15)


def test_half_requests_from_many_addresses_fill_one_service_and_neither_another_one_nor_the_metrics(live: Live) -> None:
    """More of them than HAProxy takes in all, and from no address as many as one may have."""
    settings(live)
    live.configure(CHAT, Service("embed", PORT + 3))
    try:
        with half_requests(live, 4300, 20) as made:
            began = time.monotonic()
            assert live.inside("python3", "-c", FETCH) == "200"
            assert is_documented_refusal(live.ask(port=PORT + 3, authorization=f"Bearer {KEY}"))
            assert time.monotonic() - began < 3
            assert made < 4100
    finally:
        live.run(commands.forget("embed"))


def test_a_body_that_is_too_large_gets_413_whether_its_length_is_known_or_not(live: Live) -> None:
    settings(live, max_body_mib=1)

    assert send(live, padded(LIMIT), chunked=False).served_by == SERVED_BY[BLUE]
    known = send(live, padded(LIMIT + 1), chunked=False, close_early=True)
    assert (known.status, known.json["error"]["code"]) == (413, "request_too_large")
    unknown = send(live, padded(UNMEASURED + 1), chunked=True)
    assert (unknown.status, unknown.json["error"]["code"]) == (413, "request_too_large")
    seen = live.ask("/v1/models/seen", authorization=f"Bearer {KEY}").json["requests"]
    assert send(live, padded(100_000_000), chunked=False, close_early=True).status == 413
    assert live.ask("/v1/models/seen", authorization=f"Bearer {KEY}").json["requests"] == seen


def test_large_headers_do_not_make_room_for_a_large_body(live: Live) -> None:
    settings(live)

    answer = live.ask(authorization=f"Bearer {KEY}", x_padding="x" * 20000)
    assert (answer.status, answer.json["error"]["code"]) == (431, "request_too_large")


@pytest.mark.parametrize(
    "path",
    [
        "/sleep",
        "/wake_up",
        "/pause",
        "/resume",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/start_profile",
        "/update_weights",
        "/scale_elastic_ep",
        "/server_info",
        "/metrics",
        "/invocations",
        "/docs",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/v1/%6coad_lora_adapter",
        "/v1/models/../load_lora_adapter",
        "//sleep",
        "/sleep?x=/v1/models",
        "/",
    ],
)
def test_a_route_that_is_not_for_inference_is_not_passed_on(live: Live, path: str) -> None:
    for body in (None, {"model": "chat"}):
        answer = live.ask(path, body)
        assert (answer.status, answer.json["error"]["code"]) == (404, "unknown_path")
        assert "x-stand-in" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/models/chat?x=1", "/tokenize", "/health"])
def test_a_route_for_inference_is_passed_on(live: Live, path: str) -> None:
    assert live.ask(path).served_by == SERVED_BY[BLUE]


def test_an_address_that_asks_too_often_gets_429_and_others_do_not(live: Live) -> None:
    settings(live, client_requests=20)
    answers = [live.ask(authorization=f"Bearer {KEY}") for _ in range(25)]

    assert answers[0].status == 200
    last = answers[-1]
    assert (last.status, last.json["error"]["code"], last.headers["retry-after"]) == (429, "rate_limit_exceeded", "10")
    assert "401" in live.machine.exec("python3", "-c", ASK_FROM_THERE, str(PORT))


def test_the_memory_of_the_container_is_limited(live: Live) -> None:
    shown = live.machine.exec("docker", "inspect", "--format={{.HostConfig.Memory}}", commands.CONTAINER)
    assert int(shown) == MEMORY_MIB * 2**20
