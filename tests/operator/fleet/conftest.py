"""A real SSH server and the fleet that knows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from sparkops.config import inventory
from sparkops.config.inventory import Fleet
from sparkops.node.node import Node
from sparkops.operator.fleet.connect import Connector
from tests.operator.fleet.ssh_server import SshServer, listening


@pytest.fixture(scope="module")
def server() -> Iterator[SshServer]:
    with listening(paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()) as listener:
        yield listener


@pytest.fixture
def fleet(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Node n1 is the server; `far` is the server too, seen through n1. Both keys are pinned."""
    monkeypatch.setenv("HOME", str(tmp_path))
    server.hang_ups, server.breaks = 0, False
    server.client_key.write_private_key_file(str(tmp_path / "id"))
    (tmp_path / "inventory.yaml").write_text(
        f"defaults: {{user: ops, ssh_key: id, port: {server.port}}}\n"
        "nodes:\n"
        "  n1: {address: 127.0.0.1}\n"
        "  far: {address: localhost, jump: n1}\n"
        "  nobody: {address: nobody.invalid}\n"
    )
    key = server.host_key
    names = "n1,far,stranger,keyless,nobody"
    (tmp_path / "known_hosts").write_text(f"{names} {key.get_name()} {key.get_base64()}\n")
    loaded = inventory.load(tmp_path / "inventory.yaml")
    changes = {"stranger": {"user": "root"}, "keyless": {"ssh_key": "nowhere"}}  # an inventory names a machine once
    again = {name: loaded.nodes["n1"].model_copy(update=change) for name, change in changes.items()}
    return loaded.model_copy(update={"nodes": {**loaded.nodes, **again}})


@pytest.fixture
def node(fleet: Fleet) -> Iterator[Node]:
    connected = Connector(fleet, patience_s=0).node("n1")
    yield connected
    connected.close()
