"""The load sees what happens, and ends by itself."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.operator.demo.traffic.report import TrafficReport
from sparkops.operator.demo.traffic.sender import is_openai_error
from tests.ports import free_port
from tests.standin.program import Program

NO_SERVER = b'{"error":{"message":"nothing serves stand-in","type":"service_unavailable","param":null,"code":503}}'
BROKEN = ("cut", "closed", "reset", "refused")
CHUNKED = b"HTTP/1.1 200 OK\r\nx-sparkops-release: q-1\r\ntransfer-encoding: chunked\r\n\r\n"


def small(url: str, *, streams: int = 2, rate: float = 100.0, **more: Any) -> Traffic:
    """A load that the test ends, or that ends after the patience of `until`."""
    return Traffic(url, "stand-in", streams=streams, rate=rate, **{"seconds": 120.0, "drain_s": 2.0, **more})


@contextmanager
def canned(answer: bytes) -> Iterator[str]:
    """A server that gives every request the same bytes and closes the connection; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                with client, client.makefile("rb") as received:
                    head = b"".join(iter(received.readline, b"\r\n"))
                    received.read(int(head.partition(b"content-length: ")[2].split()[0]))
                    client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def until(load: Traffic, shows: Callable[[TrafficReport], bool]) -> None:
    """Wait until a report shows it. Raises AssertionError."""
    deadline = time.monotonic() + 60
    while not shows(load.report()):
        assert time.monotonic() < deadline, load.report()
        time.sleep(0.01)


def test_a_good_server_gives_a_clean_report() -> None:
    with Program(RELEASE_NAME="blue", key="canary", TOK_S="1000") as program:
        program.serves()
        with small(program.url, streams=20, rate=300.0, stream_tokens=20, key="canary") as load:
            load.wait_for(200)
            assert load.process is not None
            assert "canary" not in Path(f"/proc/{load.process.pid}/cmdline").read_text()
        report = load.report()
    assert report.clean, report
    assert report.stand_ins == {"blue": report.good}
    assert report.streams > 20
    assert {(record.kind, record.connection) for record in load.records()} == {
        (kind, connection) for kind in ("short", "stream") for connection in ("fresh", "kept")
    }
    assert all(0 < record.first_s <= record.latency_s for record in load.records() if record.kind == "stream")


def test_connections_are_kept_and_used_again() -> None:
    """On a busy machine requests overlap, and each of those needs a connection; then they are enough."""
    with Program() as program, small(program.serves().url, streams=0, fresh=0.0) as load:

        def opened() -> int:
            return len({line.split(" - ")[0] for line in [*program.lines] if re.match(r"INFO: +127", line)})

        until(load, lambda report: report.good >= max(30, 4 * opened()))


@pytest.mark.parametrize(("limits", "most"), [({"most": 40}, 42), ({"seconds": 0.2}, 500)])
def test_it_ends_by_itself(limits: dict[str, Any], most: int) -> None:
    with Program() as program, small(program.serves().url, **limits) as load:
        until(load, lambda _: not load.running)
        assert load.report().clean
        assert 0 < len(load.records()) <= most


def test_a_server_that_dies_cuts_streams_and_refuses_what_comes_after() -> None:
    with Program(DIE_AFTER_REQUESTS="30", TOK_S="50") as program, small(program.serves().url) as load:
        until(load, lambda report: "short refused" in report.failures)
    failures = load.report().failures
    assert failures["stream cut"] == 2
    assert set(failures) <= {
        "stream cut",
        "stream refused",
        "short cut",
        "short closed",
        "short reset",
        "short refused",
    }


def test_a_server_that_ends_well_cuts_no_stream() -> None:
    with Program(TOK_S="300") as program, small(program.serves().url, rate=0.0, stream_tokens=60) as load:
        until(load, lambda _: program.metric("vllm:num_requests_running") == 2)
        program.tell().ended()
    assert "stream cut" not in load.report().failures
    assert load.report().good >= 2


def test_a_wrong_answer_is_a_failure() -> None:
    with Program(ANSWERS="nonsense") as program, small(program.serves().url, streams=0) as load:
        until(load, lambda report: report.failures.get("short wrong", 0) > 3)


def test_a_server_that_hangs_is_given_up() -> None:
    with Program(HEALTH_ONLY="1") as program, small(program.serves().url, timeout_s=0.1) as load:
        until(load, lambda report: {"short timeout", "stream timeout"} <= set(report.failures))


def test_a_stream_that_vllm_ends_after_its_core_has_died_is_cut() -> None:
    with Program(CORE_DIES_AFTER_S="1", TOK_S="5") as program, small(program.serves().url, rate=0.0) as load:
        until(load, lambda report: "stream cut" in report.failures)


def test_nobody_there_is_refused() -> None:
    with small(f"http://127.0.0.1:{free_port()}", streams=0) as load:
        until(load, lambda report: report.failures.get("short refused", 0) > 3)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nParis", "short cut"),
        (b"", "short closed"),
        (b"HTTP/1.1 50", "short cut"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 1\r\n\r\nx", "short status 502"),
    ],
)
def test_a_broken_answer_is_told_as_what_it_is(answer: bytes, reason: str) -> None:
    with canned(answer) as url, small(url, streams=0) as load:
        until(load, lambda report: reason in report.failures)
    assert load.report().good == 0


@pytest.mark.parametrize(
    ("rest", "clean"),
    [
        (b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", True),
        (b"a\r\ndata: [DON\r\n4\r\nE]\n\n\r\n0\r\n\r\n", True),
        (b"8\r\ndata: {}\r\n0\r\n\r\n", False),
        (b'15\r\ndata: {"error": {}}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n', False),
        (b'a\r\ndata: {"er\r\na\r\nror": {}}\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n', False),
        (b"8\r\ndata: {}\r\n", False),
    ],
)
def test_a_stream_is_whole_only_with_done_at_its_end_and_no_error_before_it(rest: bytes, clean: bool) -> None:
    with canned(CHUNKED + rest) as url, small(url, streams=1, rate=0.0) as load:
        until(load, lambda _: bool(load.records()))
    assert load.report().clean is clean
    assert set(load.report().failures) <= {"stream cut"}
    assert {record.release for record in load.records()} == {"q-1"}


def test_the_documented_refusal_is_known() -> None:
    head = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: %d\r\n\r\n" % len(NO_SERVER)
    with canned(head + NO_SERVER) as url, small(url, streams=1) as load:
        until(load, lambda report: report.refusals > 3)
    assert load.report().failures == {}


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "no"}', b'{"error": {"message": 1, "type": "a"}}'])
def test_other_bodies_are_not_openais(body: bytes) -> None:
    assert not is_openai_error(body)
