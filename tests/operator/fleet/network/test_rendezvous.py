"""templates/rendezvous.py as a program."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.assets import load_rendezvous
from sparkops.node.network import commands
from sparkops.node.network.commands import RankRendezvous, RendezvousReport

pytestmark = pytest.mark.local  # real shells read real files


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def connect(given: RankRendezvous) -> RendezvousReport:
    argv = [sys.executable, "-", json.dumps(asdict(given))]
    return commands.rendezvous_report(
        subprocess.run(argv, input=load_rendezvous(), capture_output=True, check=True).stdout.decode()
    )


def arguments(rank: int, port: int, *, ranks: int = 2, head: str = "127.0.0.1", **changes: Any) -> RankRendezvous:
    others = (f"127.0.0.{number}" for number in range(2, ranks + 1))
    return replace(RankRendezvous(rank, (head, *others), port, patience_s=0.3), **changes)


def call(port: int, source: str, message: bytes) -> bytes:
    """Call rank 0 until it listens. Returns its reply."""
    end_s = time.monotonic() + 60.0
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 60.0, (source, 0)) as connection:
                connection.sendall(message)
                connection.shutdown(socket.SHUT_WR)
                return connection.recv(8)
        except ConnectionRefusedError:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        except OSError:  # closed before it had read
            return b""


def test_ranks_meet_whoever_comes_first(port: int) -> None:
    with ThreadPoolExecutor() as pool:
        ranks = [pool.submit(connect, arguments(rank, port, ranks=3, patience_s=10.0)) for rank in (2, 1, 0)]
        two, one, head = (rank.result() for rank in ranks)

    assert (sorted(head.met), one.met, two.met) == ([1, 2], (0,), (0,))
    assert [rank.problem for rank in (head, one, two)] == ["", "", ""]


def test_what_is_no_rank_decides_nothing(port: int) -> None:
    """A stranger, with garbage or the number of a rank, and a program on the node of a rank."""
    with ThreadPoolExecutor() as pool:
        head = pool.submit(connect, arguments(0, port, ranks=3, patience_s=60.0))
        strangers = [call(port, "127.0.0.9", message) for message in (b"GET / HT", b"1", b"2", b"")]
        beside = [call(port, "127.0.0.2", message) for message in (b"GET / HT", b"2", b"1\n", b"", b"\xff")]
        one, again, two = call(port, "127.0.0.2", b"1"), call(port, "127.0.0.2", b"1"), call(port, "127.0.0.3", b"2")

    assert {*strangers, *beside, again} == {b""}
    assert (one, two) == (b"0", b"0")
    assert (head.result().met, head.result().problem) == ((1, 2), "")


def test_a_rank_that_finds_nobody_says_so(port: int) -> None:
    assert connect(arguments(1, port)).problem == "[Errno 111] Connection refused"


def test_rank_0_that_nobody_calls_has_met_nobody(port: int) -> None:
    head = connect(arguments(0, port))

    assert (head.met, head.problem) == ((), "")


def test_rank_0_whose_address_is_not_there_says_so(port: int) -> None:
    assert "Cannot assign requested address" in connect(arguments(0, port, head="203.0.113.7")).problem


def test_rank_0_whose_port_is_taken_says_so(busy: int) -> None:
    assert "Address already in use" in connect(arguments(0, busy)).problem


def test_a_program_that_is_no_rank_0_is_not_met(busy: int) -> None:
    assert connect(arguments(1, busy)).met == ()


def test_taken_ports_rights_and_versions_are_told(port: int, busy: int) -> None:
    head = connect(arguments(0, port, ports=(busy, port)))

    assert head.taken == (busy,)
    assert head.memlock_bytes == resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    assert list(head.rdma) == sorted(file.name for file in Path("/dev/infiniband").glob("*"))
    assert head.ray == ""  # what runs the tests does not hold it
