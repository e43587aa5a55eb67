"""A fleet of two nodes on this machine's loopback addresses, and the programs of Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import shipped
from sparkops.config.inventory import Fleet, load

KEY = "k3y-of-the-test-0123456789"
NODES = {"n1": "127.0.0.1", "n2": "127.0.0.2"}
INVENTORY = """\
nodes:
  n1: {{address: 127.0.0.1, port: 22}}
  n2: {{address: 127.0.0.2, port: 22}}
gateway: {{node: n1, metrics_port: {gateway}}}
"""
SHIPPED = shipped.directory("templates") / "monitoring"
ALERTS: list[dict[str, Any]] = yaml.safe_load((SHIPPED / "sparkops-alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD: dict[str, Any] = json.loads((SHIPPED / "sparkops-dashboard.json").read_text())
COLUMNS = 24
"""Of Grafana's grid."""
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
