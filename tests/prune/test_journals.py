"""Nodes whose journals prune cannot read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from sparkops.config.inventory import Build, Fleet
from sparkops.errors import NotReady
from sparkops.guard_client.commands import VOLUME
from sparkops.nodes.connected import Connected
from sparkops.nodes.docker_api import Engine
from sparkops.nodes.member import Member
from sparkops.prune.run import read_nodes
from tests.examples import node
from tests.nodes.recording import RecordingNode


@dataclass
class WithoutContainers:
    """The Docker of a node with these volumes only."""

    volumes: set[str] = field(default_factory=set)

    def container(self, _: str) -> None:
        """See Engine.container."""

    def has_volume(self, name: str) -> bool:
        """See Engine.has_volume."""
        return name in self.volumes


def connected(engine: WithoutContainers) -> Connected:
    member = Member("n1", node(), RecordingNode("n1"), cast("Engine", engine))
    nodes = {"n1": member.config}
    return Connected(Fleet(file=Path("i"), nodes=nodes, build=Build(), known_hosts=Path("k")), {"n1": member})


def test_nothing_is_removed_beside_journals_whose_guard_was_removed() -> None:
    with pytest.raises(NotReady, match="n1: sparkops-guard not found: which releases its journals need is unknown"):
        read_nodes(connected(WithoutContainers({VOLUME})), ["n1"])


def test_a_node_that_never_had_a_guard_has_no_journals() -> None:
    assert read_nodes(connected(WithoutContainers()), []).intended.journals == {}
