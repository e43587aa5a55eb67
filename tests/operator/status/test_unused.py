"""Nodes without containers of sparkops, on this machine with a Docker socket of the test."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from sparkops.config import inventory
from sparkops.errors import CommandFailed, SparkopsError
from sparkops.operator.status.observation import NodeReport, reported
from sparkops.operator.status.read import Reader
from tests.docker_socket import docker_socket
from tests.fleet_unit.machine import inspect


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the programs of the test, and Docker's default address."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("DOCKER_HOST", raising=False)


def read_without_python(tmp_path: Path) -> str | SparkopsError:
    """Read this machine as a node without Python and guard, whose Docker listens on docker.sock."""
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3").chmod(0o755)
    file = tmp_path / "inventory.yaml"
    file.write_text("nodes:\n  n1: {transport: local}\ngateway: {node: n1, address: 127.0.0.1}\n")
    fleet = inventory.load(file)
    reader = Reader(fleet, fleet.nodes, report=str(tmp_path / "status.sock"))
    reader.docker = str(tmp_path / "docker.sock")
    with closing(reader):
        return reader.read()["n1"]


@pytest.mark.parametrize("others", [[], ["postgres"]])
def test_a_node_without_containers_of_sparkops_is_read_without_a_program(tmp_path: Path, others: list[str]) -> None:
    with docker_socket(tmp_path / "docker.sock") as daemon:
        daemon.names = others
        report = reported("n1", read_without_python(tmp_path))

    assert isinstance(report, NodeReport)
    assert (report.ranks, report.gateway, report.states) == ((), None, ())
    assert report.host.memory_total_gib > 0


@pytest.mark.parametrize("case", ["engine", "gateway", "guard", "DOCKER_HOST", "refused", "no socket"])
def test_a_node_that_may_have_containers_of_sparkops_is_read_by_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    if case == "DOCKER_HOST":
        monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    with docker_socket(tmp_path / ("other.sock" if case == "no socket" else "docker.sock")) as daemon:
        daemon.inspects = [inspect("c", {"sparkops.service": "chat"}, "running")] if case == "engine" else []
        daemon.names = [f"sparkops-{case}"] if case in ("gateway", "guard") else []
        daemon.refusal = "busy" if case == "refused" else ""
        outcome = read_without_python(tmp_path)

    assert isinstance(outcome, CommandFailed)
    assert "python3" in str(outcome)
