"""`uninstall` refuses names that the inventory does not have, before it connects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operator.cli.conftest import Sparkops

pytestmark = pytest.mark.unit


def test_an_unknown_node_cannot_be_given_up(sparkops: Sparkops, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("nodes: {n1: {transport: local}, n2: {address: 10.0.0.2}}\n")

    ran = sparkops("node", "uninstall", "n1", "--without", "n3", "--dry-run")

    assert ran.code == 2
    assert "unknown node 'n3'" in ran.err
