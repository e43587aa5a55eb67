"""The guard renews the rules of its node from the labels of the containers that are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Command, Completed
from sparkops.commands import docker, firewall
from sparkops.commands.firewall import Firewall
from sparkops.config.inventory import NodeConfig
from sparkops.guard.filter import Filter, enforce
from sparkops.guard.store import Store
from sparkops.release import Rank, Release, Slot
from tests import examples
from tests.fleet_unit.machine import Machine
from tests.fleet_unit.nodes import MachineNode

CALLERS, RANGE = ("10.0.0.1",), "32768\t60999\n"


@dataclass
class NftNode(MachineNode):
    """A machine with nftables, or with a kernel that has none."""

    sent: list[str] = field(default_factory=list)
    broken: bool = False

    def run(self, command: Command, **options: Any) -> Completed:
        if command == firewall.EPHEMERAL:
            return Completed(self.name, command, 0, RANGE, "")
        if command.argv[0] != "nft" or self.broken:
            return super().run(command, **options)
        self.sent.append(command.stdin.decode())
        return Completed(self.name, command, 0, "", "")


@pytest.fixture
def node(tmp_path: Path) -> NftNode:
    made = NftNode(Machine("n2", "127.0.0.3"), Store(tmp_path))
    rank = Rank(Release(examples.recipe(), examples.INPUTS), Slot.BLUE, "n2", callers=CALLERS)
    made.run(docker.create(rank, NodeConfig(transport="local"), examples.IMAGE_ID, 1))
    return made


def test_the_rules_follow_the_containers(node: NftNode) -> None:
    enforce(node)
    assert node.sent == [firewall.rules(Firewall({8001: CALLERS}), RANGE)]

    node.machine.containers.clear()
    enforce(node)
    assert node.sent[1:] == [firewall.CLEARED]


def test_rules_are_renewed_at_every_look_because_others_may_remove_them(node: NftNode) -> None:
    lines: list[str] = []
    ports = Filter(node, lines.append)
    ports.look()
    ports.look()

    assert (len(node.sent), lines) == (2, [])


def test_what_fails_is_logged_once_until_it_works_again(node: NftNode) -> None:
    lines: list[str] = []
    ports = Filter(node, lines.append)
    for broken in (True, True, False, True):
        node.broken = broken
        ports.look()

    assert len(lines) == 2
    assert lines[0].startswith("ports of engines and ranks are not closed to others: ")
    assert "nft -f -" in lines[0]
