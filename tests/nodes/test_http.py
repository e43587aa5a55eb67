"""HTTP over a node's streams, to a real server."""

from __future__ import annotations

import socket
import threading

import pytest
import requests

from sparkops.nodes.http import session
from sparkops.nodes.local import LocalNode
from sparkops.nodes.node import Node
from sparkops.nodes.recording import RecordingNode
from tests.http_server import Answer, Asked, answering

NODE = LocalNode("here")


def echo(asked: Asked) -> Answer:
    return Answer(body=f"{asked.method} {asked.path} {asked.body.decode()}".encode())


def test_every_url_goes_to_the_port_of_the_node() -> None:
    with answering(echo) as server, session(NODE, server.port) as asking:
        assert asking.get("http://node/health").text == "GET /health "
        assert asking.post("http://anything.else:1234/v1", json={"a": 1}).text == 'POST /v1 {"a": 1}'


def test_it_goes_through_ssh_as_well(node: Node) -> None:
    with answering(echo) as server, session(node, server.port) as asking:
        assert asking.get("http://node/health").text == "GET /health "


def test_one_connection_serves_several_requests() -> None:
    with answering(echo) as server, session(NODE, server.port) as asking:
        for _ in range(3):
            asking.get("http://node/health")

        assert len({asked.connection for asked in server.asked}) == 1


def test_requests_at_once_have_connections_of_their_own() -> None:
    both = threading.Barrier(2)

    def respond(_: Asked) -> Answer:
        both.wait(5)
        return Answer(body=b"met")

    with answering(respond) as server, session(NODE, server.port) as asking:
        threads = [threading.Thread(target=asking.get, args=("http://node/",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len({asked.connection for asked in server.asked}) == 2


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
