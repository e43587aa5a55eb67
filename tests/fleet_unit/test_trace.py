"""What `-v` logs of reads of Docker and of commands that a guard runs."""

from __future__ import annotations

import logging

import pytest

from sparkops.nodes.trace import COMMANDS
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.locks import CUT, hold


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, COMMANDS.name)
    return caplog


def test_reads_of_docker_are_logged_as_method_and_path(make: Make, logged: pytest.LogCaptureFixture) -> None:
    with make(1).order() as order:
        order.connected.member("n1").engine.containers(service="chat")
        order.connected.member("n1").engine.container("sparkops-guard")

    assert logged.messages == [
        "n1: docker API GET /version",
        "n1: docker API GET /containers/json",
        "n1: docker API GET /containers/sparkops-guard/json",
    ]


def test_commands_that_a_guard_runs_are_logged(make: Make, logged: pytest.LogCaptureFixture) -> None:
    with hold(make(1), nodes=("n1",)) as held:
        logged.clear()
        held.run("n1", CUT)

    assert logged.messages == [f"n1: {CUT}"]
