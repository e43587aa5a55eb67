"""The log of commands: complete, and without stdin."""

from __future__ import annotations

import logging
import socket

import pytest

from sparkops.command import Command
from sparkops.config.inventory import Fleet
from sparkops.config.node import NodeConfig
from sparkops.node.node import COMMANDS
from sparkops.operator.fleet.connect import Connector

SECRET = b"hf_secret"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, COMMANDS.name)
    return caplog


def test_commands_over_ssh_are_logged_with_their_node_and_without_stdin(
    fleet: Fleet, logged: pytest.LogCaptureFixture
) -> None:
    node = Connector(fleet, patience_s=0).node("n1")

    ran = node.run(Command(("cat", "-"), stdin=SECRET), stdin=[SECRET])
    node.pipe(Command(("echo", "a b"))).close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        node.dial(port).close()
    node.close()

    assert ran.stdout == "hf_secrethf_secret"
    assert logged.messages == ["n1: cat -", "n1: echo 'a b'", f"n1: connect to 127.0.0.1:{port}"]


def test_commands_on_this_machine_are_logged(fleet: Fleet, logged: pytest.LogCaptureFixture) -> None:
    here = fleet.model_copy(update={"nodes": {"here": NodeConfig(transport="local")}})

    Connector(here).node("here").run(Command(("true",)))

    assert logged.messages == ["here: true"]
