"""init on real nodes: from addresses to an inventory that a deploy can use."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config import inventory
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import Cli

pytestmark = pytest.mark.fleet

CLOSED = "127.0.0.2"


@pytest.fixture
def newcomer(nodes: RealFleet, tmp_path: Path) -> Cli:
    """A user who has an SSH key and no inventory."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(f"Host *\n  User ops\n  IdentityFile {nodes.ssh_key}\n")
    return Cli(tmp_path / "inventory.yaml", tmp_path)


def test_two_nodes_and_one_that_is_off_become_an_inventory(nodes: RealFleet, newcomer: Cli) -> None:
    addresses = [node.address for node in nodes.nodes]
    ran = newcomer("init", *addresses, CLOSED, "--yes")
    fleet = inventory.load(newcomer.inventory)

    assert ran.code == 1, ran.err
    assert f"spark-3: cannot connect to ops@{CLOSED}:22" in ran.err
    assert ran.err.endswith(f"  next: sparkops init {' '.join(addresses)} {CLOSED}\n")
    assert {(node.address, node.gpu, node.model_dir) for node in fleet.nodes.values()} == {
        (address, "none", "/srv/models") for address in addresses
    }
    assert ran.out.splitlines()[0].startswith(f"{next(iter(fleet.nodes))} ")  # doctor has run
    assert newcomer("status").code == 0
    assert len((newcomer.inventory.parent / "known_hosts").read_text().splitlines()) == 2


def test_without_an_answer_no_key_is_pinned_and_nothing_is_overwritten(nodes: RealFleet, newcomer: Cli) -> None:
    address = nodes.nodes[0].address
    first = newcomer("init", address)

    assert (first.code, "no terminal to confirm on" in first.err) == (1, True)
    assert not (newcomer.inventory.parent / "known_hosts").exists()
    assert newcomer("init", address, "--yes").code == 0  # nobody has edited what init wrote
    newcomer.inventory.write_text(f"# mine\n{newcomer.inventory.read_text()}")
    assert newcomer("init", address, "--yes").code == 2
    assert newcomer("init", address, "--yes", "--force").code == 0
