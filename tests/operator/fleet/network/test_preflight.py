"""The order of a preflight over two Sparks with one cable. Nodes are recordings, so commands and answers are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from sparkops.config.inventory import Build, Fleet
from sparkops.node.docker_api import Engine
from sparkops.node.member import Member
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.network import preflight
from sparkops.operator.fleet.network.checks import Ranks
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.topology import Fabric
from tests import sparks
from tests.examples import node
from tests.node.network.test_commands import WRITE_BW
from tests.node.recording import RecordingNode
from tests.sparks import spark

RANKS = Ranks("x:1", "x", 29501)
MET = {
    "ray": "2.60.0",
    "memlock": -1,
    "rdma": ["uverbs0"],
    "taken": [],
    "met": [0],
    "problem": "",
}
WELL = {"docker": json.dumps(MET), "timeout": WRITE_BW}
IMAGE = {"Id": "sha256:1", "Os": "linux", "Architecture": "arm64", "RootFS": {"Layers": ["a"]}, "Config": {}}


@dataclass(frozen=True)
class Images:
    """The part of a node's Docker that a preflight reads."""

    image: Mapping[str, Any] | None

    def trusted(self, _: str) -> Mapping[str, Any] | None:
        return self.image


@dataclass(frozen=True)
class Bench:
    """Two Sparks that are joined, and what they were asked."""

    connected: Connected
    fabric: Fabric
    facts: Mapping[str, NodeFabric]

    def run(self, ranks: Ranks | None = RANKS) -> list[tuple[str, str]]:
        return [
            (finding.code, finding.node) for finding in preflight.run(self.connected, self.fabric, self.facts, ranks)
        ]

    def programs(self) -> list[str]:
        ran = [
            command for member in self.connected.members.values() for command in cast(RecordingNode, member.node).ran
        ]
        return sorted({command.argv[0] for command in ran})


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make(image: Mapping[str, Any] | None = IMAGE, **nodes: RecordingNode) -> Bench:
        fabric = sparks.join(tmp_path, spark(1), spark(2))
        members = {
            name: Member(name, node(), nodes.get(name, RecordingNode(name, WELL)), cast(Engine, Images(image)))
            for name, image in (("a", IMAGE), ("b", image))
        }
        configs = {name: member.config for name, member in members.items()}
        fleet = Fleet(file=Path("i.yaml"), nodes=configs, build=Build(), known_hosts=Path("k"))
        facts = {name: sparks.facts(tmp_path / name, spark(number)) for number, name in enumerate(members, 1)}
        return Bench(Connected(fleet, members), fabric, facts)

    return make


def test_two_sound_sparks_are_asked_everything_and_nothing_is_found(bench: Callable[..., Bench]) -> None:
    sound = bench()

    assert (sound.run(), sound.programs()) == ([], ["docker", "ping", "timeout"])


def test_without_ranks_only_packets_are_sent(bench: Callable[..., Bench]) -> None:
    sound = bench()

    assert (sound.run(None), sound.programs()) == ([], ["ping"])


def test_over_a_broken_link_nothing_else_is_tried(bench: Callable[..., Bench]) -> None:
    broken = bench(b=RecordingNode("b", WELL, exit_codes={"ping": 1}))

    assert broken.run() == [("NO_ANSWER", "b"), ("NO_ANSWER", "b")]
    assert broken.programs() == ["ping"]


def test_a_missing_image_does_not_hide_a_slow_link(bench: Callable[..., Bench]) -> None:
    slow = {**WELL, "timeout": WRITE_BW.replace("92.56", "13.49")}

    tested = bench(None, b=RecordingNode("b", slow))

    assert tested.run() == [("NO_IMAGE", "b"), ("SLOW_LINK", "b"), ("SLOW_LINK", "b")]
    assert tested.programs() == ["ping", "timeout"]
