"""The log of commands: complete, without stdin, and absent unless somebody listens."""

from __future__ import annotations

import logging
import socket

import pytest

from sparkops.command import Command
from sparkops.config.inventory import Fleet, NodeConfig
from sparkops.nodes.connect import Connector
from sparkops.nodes.local import LocalNode
from sparkops.nodes.ssh import SshNode
from sparkops.nodes.trace import COMMANDS, TracedNode
from tests.nodes.recording import RecordingNode

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


def test_without_a_listener_no_node_is_wrapped(fleet: Fleet) -> None:
    here = fleet.model_copy(update={"nodes": {**fleet.nodes, "here": NodeConfig(transport="local")}})
    connector = Connector(here, patience_s=0)
    node = connector.node("n1")
    node.close()

    assert [type(node), type(connector.node("here"))] == [SshNode, LocalNode]


def test_a_wrapped_node_passes_everything_on(logged: pytest.LogCaptureFixture) -> None:
    recording = RecordingNode("n1", answers={"cat": "a\nb\n"})
    node, lines = TracedNode(recording), list[str]()

    done = node.run(Command(("cat",)), on_line=lines.append)

    assert (done.stdout, lines, recording.ran) == ("a\nb\n", ["a", "b"], [Command(("cat",))])
    assert (node.name, node.cancel) == ("n1", recording.cancel)
    with pytest.raises(ConnectionRefusedError):
        node.dial(1)
    with pytest.raises(FileNotFoundError):
        node.pipe(Command(("cat",)))
    assert logged.messages == ["n1: cat", "n1: connect to 127.0.0.1:1", "n1: cat"]
