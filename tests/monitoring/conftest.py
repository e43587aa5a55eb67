"""A fleet of two nodes on this machine's loopback addresses, and the programs of Prometheus."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config.inventory import Fleet, load

KEY = "k3y-of-the-test-0123456789"
NODES = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
INVENTORY = """\
nodes:
  n1: {{address: 127.0.0.1, port: 22}}
  n2: {{address: 127.0.0.2, port: 22}}
gateway: {{node: n1, metrics_port: {gateway}}}
"""
MONITORING = "monitoring: {{key: monitoring.key, port: {guards}}}\n"


def fleet_of(directory: Path, gateway: int = 8405, guards: int | None = 10845) -> Fleet:
    """The fleet of an inventory in a directory; without `guards` it has no section `monitoring`."""
    key, file = directory / "monitoring.key", directory / "inventory.yaml"
    key.write_text(f"{KEY}\n")
    key.chmod(0o600)
    file.write_text((INVENTORY + (MONITORING if guards else "")).format(gateway=gateway, guards=guards))
    return load(file)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return fleet_of(tmp_path)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp() / "debian"
