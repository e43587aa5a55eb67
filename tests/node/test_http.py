"""HTTP over a node's streams, to a real server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest
import requests

from sparkops.node.http import MOST_BYTES, AnswerTooLong, session
from sparkops.node.local import LocalNode
from tests.http_server import Answer, Asked, answering
from tests.node.recording import RecordingNode

NODE = LocalNode("here")


def echo(request: Asked) -> Answer:
    return Answer(body=f"{request.method} {request.path} {request.body.decode()}".encode())


def test_every_url_goes_to_the_port_of_the_node() -> None:
    with answering(echo) as server, session(NODE, server.port) as asking:
        assert asking.get("http://node/health").text == "GET /health "
        assert asking.post("http://anything.else:1234/v1", json={"a": 1}).text == 'POST /v1 {"a": 1}'


def test_one_connection_serves_several_requests() -> None:
    with answering(echo) as server, session(NODE, server.port) as asking:
        for _ in range(3):
            asking.get("http://node/health")

        assert len({request.connection for request in server.requests}) == 1


def test_requests_at_once_have_connections_of_their_own() -> None:
    both = threading.Barrier(2)

    def respond(_: Asked) -> Answer:
        both.wait(60)
        return Answer(body=b"met")

    with answering(respond) as server, session(NODE, server.port) as asking:
        threads = [threading.Thread(target=asking.get, args=("http://node/",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len({request.connection for request in server.requests}) == 2


def test_the_operator_s_proxy_has_no_part_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    with answering(echo) as server, session(NODE, server.port) as asking:
        assert asking.get("http://node/health").text == "GET /health "


def test_a_large_body_comes_whole() -> None:
    with (
        answering(lambda _: Answer(body=b"x" * 5_000_000)) as server,
        session(NODE, server.port) as asking,
    ):
        assert asking.get("http://node/").content == b"x" * 5_000_000


ENDLESS = ("Transfer-Encoding: chunked", f"Content-Length: {2**40}", "Connection: close")


@pytest.mark.parametrize("framing", ENDLESS)
def test_an_answer_without_end_is_refused(framing: str) -> None:
    """One chunk, one body of a known length, and one that ends with the connection: each has 1 TiB."""
    size = b"%x\r\n" % 2**40 if framing.startswith("Transfer") else b""
    sent: list[int] = []

    def pour() -> None:
        caller, _ = door.accept()
        with caller, suppress(OSError):  # it has hung up, as it should
            caller.recv(2**16)
            caller.sendall(b"HTTP/1.1 200 OK\r\n" + framing.encode() + b"\r\n\r\n" + size)
            while sum(sent) < 4 * MOST_BYTES:
                sent.append(caller.send(bytes(2**20)))

    with socket.create_server(("127.0.0.1", 0)) as door:
        pouring = threading.Thread(target=pour)
        pouring.start()
        with session(NODE, door.getsockname()[1]) as asking, pytest.raises(AnswerTooLong, match="more than 16777216 "):
            asking.get("http://node/metrics", timeout=10)
        pouring.join()

    assert MOST_BYTES < sum(sent) < 2 * MOST_BYTES


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_redirect_of_an_engine_leads_nowhere(scheme: str, status: int) -> None:
    def away(request: Asked) -> Answer:
        elsewhere = f"{scheme}://127.0.0.1:{server.port}/elsewhere"
        return Answer(status, b"", {"Location": elsewhere}) if request.path == "/" else Answer()

    with answering(away) as server, session(NODE, server.port) as asking:
        with pytest.raises(requests.TooManyRedirects):
            asking.post("http://node/", json={})
        with pytest.raises(requests.exceptions.InvalidSchema):
            asking.get(f"https://127.0.0.1:{server.port}/")

        assert [request.path for request in server.requests] == ["/"]


def test_a_server_that_never_answers_times_out() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        session(NODE, silent.getsockname()[1]) as asking,
        pytest.raises(requests.exceptions.ReadTimeout),
    ):
        asking.get("http://node/", timeout=0.2)


def test_a_port_that_refuses_is_a_connection_error() -> None:
    with session(RecordingNode("n1"), 8000) as asking, pytest.raises(requests.ConnectionError, match="n1:8000"):
        asking.get("http://node/")
