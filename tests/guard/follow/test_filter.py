"""The guard renews the rules of its node from the labels of the containers that are there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Command, Completed
from sparkops.config.node import NodeConfig
from sparkops.config.release import Rank, Release
from sparkops.errors import CommandFailed, NodeError
from sparkops.guard.follow.engines import ContainerReader, Engines
from sparkops.guard.follow.filter import Filter, close_ports
from sparkops.names import Slot
from sparkops.node.agents.commands import CONTAINER as GUARD
from sparkops.node.docker import commands
from sparkops.node.docker_api import Engine
from sparkops.node.network import firewall
from sparkops.node.network.firewall import Firewall
from sparkops.node.node import Stream
from tests import examples
from tests.fleet_unit.machine import Machine, inspect
from tests.fleet_unit.nodes import MachineNode

CALLERS, RANGE = ("10.0.0.1",), "32768\t60999\n"
WALL = Firewall({8001: CALLERS}, engine_ports=frozenset({8001}))


@dataclass
class NftNode(MachineNode):
    """A machine with nftables, or with a kernel that has none."""

    sent: list[str] = field(default_factory=list)
    broken: bool = False
    present: str = ""
    """The rules that nftables has."""
    opened: int = 0
    listed: Callable[[], None] = lambda: None
    """Called once the containers were listed for the rules."""

    def pipe(self, command: Command) -> Stream:
        """Count the streams to Docker."""
        self.opened += 1
        return super().pipe(command)

    def run(self, command: Command, **options: Any) -> Completed:
        if command == firewall.EPHEMERAL:
            self.listed()
            return Completed(self.name, command, 0, RANGE, "")
        if command == firewall.PRESENT:
            return Completed(self.name, command, 0, self.present, "")
        if command.argv[0] != "nft" or self.broken:
            return super().run(command, **options)
        self.sent.append(command.stdin.decode())
        return Completed(self.name, command, 0, "", "")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NftNode]:
    nft_node = NftNode(Machine("n2", "127.0.0.3"), tmp_path)
    rank = Rank(Release(examples.recipe(), examples.INPUTS), Slot.BLUE, "n2", callers=CALLERS)
    nft_node.run(commands.create(rank, NodeConfig(transport="local"), examples.IMAGE_ID, 1))
    yield nft_node
    for listening in nft_node.machine.up.values():
        listening.close()


def test_the_rules_follow_the_containers(node: NftNode) -> None:
    close_ports(node)
    assert node.sent == [firewall.rules(WALL, RANGE)]

    node.machine.containers.clear()
    close_ports(node)
    assert node.sent[1:] == [firewall.CLEARED]


def test_rules_are_renewed_at_every_look_because_others_may_remove_them(node: NftNode) -> None:
    lines: list[str] = []
    ports = Filter(node, lines.append)
    ports.look()
    ports.look()

    assert (len(node.sent), lines) == (2, [])


def test_rules_of_an_older_list_replace_none_of_a_newer_one(node: NftNode) -> None:
    """An engine is about to start while a look is in progress: its port must not be open until the next look."""
    containers, ports = dict(node.machine.containers), Filter(node, print)
    node.machine.containers.clear()
    starting = threading.Thread(target=close_ports, args=(node,))

    def create_and_start() -> None:
        node.listed = lambda: None
        node.machine.containers.update(containers)
        starting.start()
        starting.join(0.5)  # without the lock it ends here

    node.listed = create_and_start
    ports.look()
    starting.join()

    assert node.sent == [firewall.CLEARED, firewall.rules(WALL, RANGE)]


def test_looks_share_a_stream_to_docker_and_a_failed_one_opens_another(node: NftNode) -> None:
    ports = Filter(node, print)
    for broken in (False, False, True, False):
        node.broken = broken
        ports.look()

    assert node.opened == 2


def test_a_dead_container_without_a_name_hides_no_other(node: NftNode) -> None:
    """Docker lists it so after a removal that has failed. An error of another kind would end the guard."""
    node.machine.containers["dead"] = inspect("dead", {"sparkops.service": "other"}, "dead")
    local: Any = node
    lines: list[str] = []
    Filter(node, lines.append).look()
    with closing(ContainerReader(local, lines.append)) as reader, closing(Engine(node)) as engine:
        assert reader.read()
        assert len(engine.containers()) == len(reader.containers) == 2

    assert (node.sent, lines) == ([firewall.rules(WALL, RANGE)], [])


def test_what_fails_is_logged_once_until_it_works_again(node: NftNode) -> None:
    lines: list[str] = []
    ports = Filter(node, lines.append)
    for broken in (True, True, False, True):
        node.broken = broken
        ports.look()

    assert len(lines) == 2
    assert lines[0].startswith("ports of engines and ranks stay open: ")
    assert "nft -f -" in lines[0]


def test_an_engine_starts_only_once_its_ports_are_closed(node: NftNode) -> None:
    engines = Engines(node, lambda *_: None, print)  # type: ignore[arg-type]  # a machine in place of this one
    [name] = [container for container in node.machine.containers if container.startswith("q-")]
    node.broken = True
    with pytest.raises(CommandFailed, match="nft -f -"):
        engines.start(name)
    assert (node.machine.up, node.sent) == ({}, [])

    node.broken = False
    engines.start(name)
    assert [*node.machine.up] == [name]
    assert node.sent == [firewall.rules(WALL, RANGE)]


@pytest.mark.parametrize(("closed", "starts"), [(8001, True), (8003, False)], ids=["its own", "another one's"])
def test_where_nftables_refuses_new_rules_an_engine_starts_whose_ports_are_closed(
    node: NftNode, closed: int, starts: bool
) -> None:
    """The engine that serves has crashed after an update of the kernel, before the next reboot."""
    engines = Engines(node, lambda *_: None, print)  # type: ignore[arg-type]  # as above
    [name] = [container for container in node.machine.containers if container.startswith("q-")]
    rule = f"tcp dport {closed} reject with tcp reset"
    node.broken, node.present = True, f"table inet sparkops {{\n\tchain input {{\n\t\t{rule}\n\t}}\n}}\n"

    with nullcontext() if starts else pytest.raises(CommandFailed, match="nft -f -"):
        engines.start(name)

    assert bool(node.machine.up) is starts


def test_an_order_changes_no_container_of_somebody_else(node: NftNode) -> None:
    """Such as the gateway's: a leader on another node names what a guard starts and stops."""
    engines = Engines(node, lambda *_: None, print)  # type: ignore[arg-type]  # a machine in place of this one
    before = [*node.machine.ran]

    for change in (engines.start, engines.stop):
        with pytest.raises(NodeError, match="sparkops-guard belongs to no service of sparkops: not changed"):
            change(GUARD)
    assert (node.machine.ran, node.sent) == (before, [])
