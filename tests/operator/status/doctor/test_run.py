"""The parts of doctor that reach out: fixes on a node, connections to the gateway's addresses."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from sparkops.command import Command
from sparkops.config.inventory import Fleet
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.node.network.finding import Finding
from sparkops.node.node import Node
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.status.doctor import run
from sparkops.operator.status.doctor.repairs import Repair, StartedAgent
from sparkops.operator.status.doctor.run import Fix, fixes
from sparkops.operator.status.picture import GatewayRow, GatewayState, ServiceRow, Status
from tests.examples import node

pytestmark = pytest.mark.local
FINDING = Finding(code="PAGE_CACHE", node="a", problem="p", next_step="s", fixable=True)


def member(on: Node) -> Member:
    """A member whose Docker API nothing asks."""
    return Member(on.name, node(), on, cast("Engine", None))


def connected() -> Connected:
    return Connected(cast("Fleet", None), {"a": member(LocalNode("a"))})


def test_a_fix_reports_what_it_did(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")

    [row] = run.fix_all(connected(), [*fixes([FINDING], {"a": node(model_dir=str(tmp_path))})])

    assert (row.node, row.code, row.done) == ("a", "PAGE_CACHE", True)
    assert row.detail == f"page cache dropped: 1 files, 0.0 GiB in {tmp_path}"


def test_a_fix_that_fails_is_reported_and_the_next_one_runs() -> None:
    failing = Fix(FINDING, Repair("false", Command(("sh", "-c", "echo a password is required >&2; exit 1"))))
    working = Fix(FINDING, Repair("true", Command(("true",))))

    rows = run.fix_all(connected(), [failing, working])

    assert [row.done for row in rows] == [False, True]
    assert "a password is required" in rows[0].detail


def test_a_fix_is_done_once_what_it_starts_answers(tmp_path: Path) -> None:
    """A gateway that was started a moment ago was reported as down by the diagnosis that followed."""
    count = f"echo >> {tmp_path}/asked; test $(wc -l < {tmp_path}/asked) -ge 3"
    started = StartedAgent("sparkops-gateway", Command(("sh", "-c", count)))

    [row] = run.fix_all(connected(), [Fix(FINDING, Repair("true", Command(("true",)), started))])

    assert row.done
    assert (tmp_path / "asked").read_text() == "\n" * 3


def status(port: int, state: GatewayState = "up") -> Status:
    service = ServiceRow(name="chat", url=f"http://127.0.0.1:{port}/v1", state="healthy", live=None, replicas=[])
    gateway = GatewayRow(node="a", address="127.0.0.1", state=state)
    return Status(nodes=[], services=[service], gateway=gateway, drift=[])


def test_an_address_that_takes_connections_is_no_finding() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert [*run.closed_addresses(status(server.getsockname()[1]))] == []


def test_an_address_that_takes_none_is_named_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    [finding] = run.closed_addresses(status(port))

    assert (finding.code, finding.node) == ("GATEWAY_CLOSED", "a")
    assert finding.problem == (
        f"no connection from this machine to the gateway at http://127.0.0.1:{port}/v1: Connection refused"
    )


def test_a_gateway_that_is_down_is_one_finding_not_two() -> None:
    assert [*run.closed_addresses(status(1, "down"))] == []
    assert [*run.closed_addresses(replace(status(1), gateway=None))] == []
