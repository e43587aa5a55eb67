"""What a client of a real gateway cannot do: reach an engine's other routes, or take what others need."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.gateway.capacity import MEMORY_MIB, connections, frontend_connections
from sparkops.names import Slot
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service
from tests.fleet import shell
from tests.gateway.live import CHAT, METRICS, PORT, SERVED_BY, Answer, Live, is_documented_refusal, wait_for

pytestmark = pytest.mark.fleet

BLUE = Slot.BLUE
KEY = "sk-valid-0123456789abcdef"
HALF_REQUESTS = Path(__file__).with_name("half_requests.py")
CLOSED, KEPT = (f"  timeout http-request {seconds}s\n" for seconds in (5, 60))
FETCH = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{METRICS}/metrics').status)"
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
def half_requests(live: Live, count: int, addresses: int = 1) -> Iterator[None]:
    """Send half requests from addresses of the node itself, and hold what connections there are."""
    script = HALF_REQUESTS.read_text()
    words = ("exec", "-i", live.machine.container, "python3", "-c", script, *map(str, (PORT, count, addresses)))
    with subprocess.Popen([shell.client(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"sent\n"
        yield
        process.stdin.close()


def settings(live: Live, **changes: object) -> None:
    live.gateway = Gateway.model_validate({"node": "n", "metrics_port": METRICS, "api_keys": ["key"], **changes})
    live.secrets = Secrets((KEY,))
    live.configure()


def settings_that_keep_half_requests(live: Live, *services: Service) -> None:
    """As `settings`, but no half request is closed within the time that a slow machine takes to answer others."""
    settings(live)
    given = live.files([CHAT, *services])
    process = given["gateway.cfg"]
    assert process
    assert CLOSED in process
    live.run(commands.configure({**given, "gateway.cfg": process.replace(CLOSED, KEPT)}))


def answer_from_there(live: Live) -> str:
    """The answer to a request from the address of half requests, or the error."""
    return live.machine.exec("python3", "-c", ASK_FROM_THERE, str(PORT))


def send(live: Live, body: bytes, *, chunked: bool, close_early: bool = False) -> Answer:
    """Send a body of JSON, whole or in chunks. Closing early ends the body after what the gateway may refuse."""
    with closing(live.connect()) as connection:
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Authorization", f"Bearer {KEY}")
        connection.putheader(*("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body))))
        connection.endheaders()
        if chunked:
            connection.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        elif not close_early:
            connection.send(body)
        return Answer.of(connection.getresponse())


def padded(size: int) -> bytes:
    """A JSON body of `size` bytes."""
    empty = len(json.dumps({"prompt": ""}))
    return json.dumps({"prompt": "x" * (size - empty)}).encode()


def test_half_requests_without_a_key_lock_out_neither_a_client_with_one_nor_the_metrics(live: Live) -> None:
    settings_that_keep_half_requests(live)
    with half_requests(live, 4100):
        assert live.ask(authorization=f"Bearer {KEY}").served_by == SERVED_BY[BLUE]
        assert live.inside("python3", "-c", FETCH) == "200"
        assert "Bearer" not in answer_from_there(live), "its own address is locked out meanwhile"


def test_half_requests_are_closed_and_their_address_is_served_again(live: Live) -> None:
    settings(live)
    with half_requests(live, 300):
        wait_for("the same address", lambda: "Bearer" in answer_from_there(live))


def test_half_requests_from_many_addresses_fill_one_service_and_neither_another_one_nor_the_metrics(live: Live) -> None:
    """More of them than HAProxy takes in all, and from no address as many as one may have."""
    settings_that_keep_half_requests(live, Service("embed", PORT + 3))
    try:
        with half_requests(live, 5700, 24):
            assert live.inside("python3", "-c", FETCH) == "200"
            assert is_documented_refusal(live.ask(port=PORT + 3, authorization=f"Bearer {KEY}"))
            assert is_full(live)
    finally:
        live.run(commands.forget("embed"))


def test_a_body_that_is_too_large_gets_413_whether_its_length_is_known_or_not(live: Live) -> None:
    settings(live, max_body_mib=1)

    assert send(live, padded(LIMIT), chunked=False).served_by == SERVED_BY[BLUE]
    known = send(live, padded(LIMIT + 1), chunked=False, close_early=True)
    assert (known.status, known.json["error"]["code"]) == (413, "request_too_large")
    unknown = send(live, padded(UNMEASURED + 1), chunked=True)
    assert (unknown.status, unknown.json["error"]["code"]) == (413, "request_too_large")
    requests = live.ask("/v1/models/seen", authorization=f"Bearer {KEY}").json["requests"]
    assert send(live, padded(100_000_000), chunked=False, close_early=True).status == 413
    assert live.ask("/v1/models/seen", authorization=f"Bearer {KEY}").json["requests"] == requests


def test_large_headers_do_not_make_room_for_a_large_body(live: Live) -> None:
    settings(live)

    answer = live.ask(authorization=f"Bearer {KEY}", x_padding="x" * 20000)
    assert (answer.status, answer.json["error"]["code"]) == (431, "request_too_large")


def is_full(live: Live) -> bool:
    """Whether a client of chat gets no answer for a second."""
    with closing(HTTPConnection(live.machine.address, PORT, timeout=1)) as client:
        try:
            client.request("GET", "/v1/models")
            client.getresponse()
        except TimeoutError:
            return True
    return False


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
    answers: list[Answer] = []

    def one_is_refused() -> bool:
        """Within 10 s 20 are allowed, so a slow machine may have to send more."""
        answers.append(live.ask(authorization=f"Bearer {KEY}"))
        return answers[-1].status != 200

    wait_for("too many", one_is_refused)
    last = answers[-1]
    assert (last.status, last.json["error"]["code"], last.headers["retry-after"]) == (429, "rate_limit_exceeded", "10")
    assert len(answers) > 20
    assert "401" in answer_from_there(live)


def test_the_memory_of_the_container_is_limited(live: Live) -> None:
    shown = live.machine.exec("docker", "inspect", "--format={{.HostConfig.Memory}}", commands.CONTAINER)
    assert int(shown) == MEMORY_MIB * 2**20


@pytest.mark.parametrize("memory_mib", [1536, 2048, 2685])
def test_haproxy_takes_the_connections_that_fit_into_the_memory(live: Live, memory_mib: int) -> None:
    settings(live, memory_mib=memory_mib)

    read = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{METRICS}/metrics').read().decode())"
    shown = live.machine.exec("python3", "-c", read).splitlines()
    assert f"haproxy_process_max_connections {connections(memory_mib)}" in shown
    assert f'haproxy_frontend_limit_sessions{{proxy="fe_chat"}} {frontend_connections(memory_mib)}' in shown
