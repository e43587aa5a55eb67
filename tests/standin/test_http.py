"""Connections are held as vLLM's server holds them."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from tests.standin.program import Program

FRANCE = "What is the capital of France?"


@pytest.fixture(scope="module")
def engine() -> Iterator[Program]:
    with Program() as program:
        yield program.serves()


def test_a_client_that_goes_away_aborts_its_request(engine: Program) -> None:
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        body = json.dumps(engine.body("Talk.", max_tokens=900, stream=True)).encode()
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        client.recv(100)
    while engine.metric("vllm:num_requests_running"):
        pass
    reasons = engine.get("/metrics").text
    assert 'finished_reason="abort",model_name="stand-in"} 1.0' in reasons


def test_a_connection_is_kept_and_may_be_pipelined(engine: Program) -> None:
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        client.sendall(b"GET /version HTTP/1.1\r\n\r\n" * 2 + b"GET /health HTTP/1.1\r\nconnection: close\r\n\r\n")
        received = b"".join(iter(lambda: client.recv(4096), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.endswith(b"connection: close\r\n\r\n")


def test_bodies_in_chunks_and_with_expect_are_read(engine: Program) -> None:
    parts = [json.dumps(engine.body(FRANCE)).encode()[at : at + 40] for at in range(0, 200, 40)]
    client = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
    client.request("POST", "/v1/chat/completions", body=iter(part for part in parts if part))
    assert b"Paris" in client.getresponse().read()
    client.close()
    with socket.create_connection(("127.0.0.1", engine.port)) as raw:
        raw.sendall(b"POST /ping HTTP/1.1\r\ncontent-length: 1\r\nexpect: 100-continue\r\n\r\n")
        assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(b"x")
        assert raw.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_what_is_not_http_is_refused(engine: Program) -> None:
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        client.sendall(b"hello\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")
