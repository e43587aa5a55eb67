"""Leases as work on a node takes them: over the real socket, asked by the program that the operator's machine runs."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.errors import Busy
from sparkops.guard.lead.leases import Leases
from sparkops.guard.lead.operator_socket import open_socket
from sparkops.node.agents.commands import CONTAINER, RELAY
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.node.node import Stream
from sparkops.node.progress import Event
from sparkops.operator.fleet.guards import leases
from tests.fleet_unit.machine import Machine
from tests.fleet_unit.nodes import MachineNode
from tests.places import ROOT

pytestmark = pytest.mark.local


@dataclass
class SocketNode(MachineNode):
    """A machine whose guard is a real socket on this one."""

    piped: list[Stream] = field(default_factory=list)
    """Every way to the guard that was opened."""

    def pipe(self, command: Command) -> Stream:
        if command != RELAY:
            return super().pipe(command)
        env = (f"PYTHONPATH={ROOT}", f"SPARKOPS_GUARD_SOCKET={self.home / 'guard.sock'}")
        stream = LocalNode(self.name).pipe(Command(("env", *env, sys.executable, "-m", "sparkops.guard.ask")))
        self.piped.append(stream)
        return stream


@dataclass
class Guard:
    """What a guard holds and refuses."""

    held: Leases
    requests: list[Any]
    loads: bool = False

    def lease(self, request: Any) -> object:
        self.requests.append(request)
        if self.loads:
            raise Busy("an engine of chat loads", next_step="sparkops status chat --follow")
        self.held.add(request["holder"])
        return self.held.until_end(request["holder"])


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guard]:
    scripted = Guard(Leases(), [])
    server = open_socket({"lease": scripted.lease}, tmp_path / "guard.sock")
    yield scripted
    server.shutdown()
    server.server_close()


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    node = SocketNode(Machine("n1", "127.0.0.1"), tmp_path, threading.Event())
    engine = Engine(node)
    yield Member("n1", NodeConfig(address="127.0.0.1"), node, engine)
    engine.close()


def test_work_holds_a_lease_named_after_what_and_who_and_gives_it_up_at_the_end(guard: Guard, member: Member) -> None:
    with leases.on_node(member, "build of image x", print):
        assert guard.held.text == f"build of image x by {leases.operator()}"
        assert guard.requests[0]["kind"] == "node"
    until(lambda: not guard.held.text)


def test_a_lease_whose_connection_broke_is_taken_again(guard: Guard, member: Member) -> None:
    node = member.node
    assert isinstance(node, SocketNode)
    with leases.on_node(member, "build of image x", print, renew_s=0.1):
        (first,) = node.piped
        assert isinstance(first, socket.socket)
        first.shutdown(socket.SHUT_RDWR)
        until(lambda: len(node.piped) > 1)
        until(lambda: guard.held.text)


def until(true: Callable[[], object]) -> None:
    end_s = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_work_is_busy_while_an_engine_loads_and_begins_when_it_has_loaded(guard: Guard, member: Member) -> None:
    guard.loads = True
    with pytest.raises(Busy, match="n1: an engine of chat loads") as caught, leases.on_node(member, "prune", print):
        pytest.fail("it began beside a load")
    assert caught.value.next_step == "sparkops status chat --follow"

    def loaded(event: Event) -> None:
        assert event.text == "waiting: n1: an engine of chat loads"
        guard.loads = False

    with leases.on_node(member, "prune", loaded, wait_s=30):
        assert guard.held.text.startswith("prune by ")


def test_a_node_without_a_guard_needs_no_lease(member: Member) -> None:
    """No engine of ours can load there."""
    node = member.node
    assert isinstance(node, SocketNode)
    del node.machine.containers[CONTAINER]

    with leases.on_node(member, "build of image x", print):
        assert not leases.guarded(member)


def test_a_deploy_has_no_lease_of_a_guard_that_does_not_know_it(tmp_path: Path, member: Member) -> None:
    kinds: dict[str, Callable[[Any], object]] = {"node": lambda _: None}
    said = list[Event]()
    server = open_socket({"lease": lambda request: kinds[request["kind"]](request)}, tmp_path / "guard.sock")
    try:
        with leases.of_deploy(member, "chat", "chat: deploy of q-2", said.append):
            pass
    finally:
        server.shutdown()
        server.server_close()

    assert [event.text.partition(":")[0] for event in said] == ["an older guard"]
