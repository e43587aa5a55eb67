"""What `-v` logs of reads of Docker."""

from __future__ import annotations

import logging

import pytest

from sparkops.node.node import COMMANDS
from tests.fleet_unit.conftest import Make


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, COMMANDS.name)
    return caplog


def test_reads_of_docker_are_logged_as_method_and_path(make: Make, logged: pytest.LogCaptureFixture) -> None:
    with make(1).order() as order:
        order.connected.member("n1").engine.containers(service="chat")
        order.connected.member("n1").engine.container("sparkops-guard")

    assert logged.messages == [
        "n1: docker API GET /_ping",
        "n1: docker API GET /containers/json",
        "n1: docker API GET /containers/sparkops-guard/json",
    ]
