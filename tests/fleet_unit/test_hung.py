"""A container that Docker does not inspect is unknown alone: the other engines of its node are led on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Command, Completed
from sparkops.errors import ConnectionLost
from sparkops.guard.disk.state import State
from sparkops.guard.follow.engines import ContainerReader
from sparkops.guard.follow.follower import Follower
from sparkops.names import Slot
from sparkops.node.node import OnLine
from sparkops.serving import engine_spec
from sparkops.serving.engine_spec import rank_spec
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica
from sparkops.swap.orders import order
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import Machine, inspect
from tests.fleet_unit.nodes import MachineNode
from tests.fleet_unit.test_loading import started
from tests.fleet_unit.world import World
from tests.guard.test_reproductions import BOOT

PATIENCE_S = 60.0
WEDGED = "wedged-r0"
OTHER = Deployment("other-1", Slot.BLUE, (Replica((RankSpec("n1", WEDGED),)),))


@dataclass
class Node(MachineNode):
    """A node that does not say which stops Docker received, as after its clock was set back."""

    mute: bool = False

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        if command.argv[:2] == ("docker", "events"):
            if self.mute:
                raise ConnectionLost(self.name, "`docker events` did not end within 20 s")
            return Completed(self.name, command, 0, "", "")
        return super().run(command, stdin=stdin, on_line=on_line)


@pytest.fixture
def world(make: Make) -> World:
    return make(1)


@pytest.fixture
def machine(world: World) -> Iterator[Machine]:
    """A node with a container of another service, whose start waits for a driver."""
    node = world.machines["n1"]
    node.containers[WEDGED] = inspect(WEDGED, {"sparkops.service": "other"}, "created")
    hangs = node.hangs[WEDGED] = threading.Event()
    yield node
    hangs.set()


def reader(world: World, lines: list[str]) -> ContainerReader:
    node: Any = world.node("n1")
    return ContainerReader(node, lines.append, inspect_s=0.2)


def until(true: Callable[[], Any]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_the_others_are_read_and_a_hung_one_is_asked_for_once(world: World, machine: Machine) -> None:
    _, rank, _ = started(world)
    lines: list[str] = []
    with closing(reader(world, lines)) as containers:
        for _ in range(5):
            assert containers.read()
            assert set(containers.containers) == {rank.container}
            assert [(name, item.state) for name, item in containers.unread.items()] == [(WEDGED, "created")]
            containers.require_recent()
        until(lambda: machine.hung[WEDGED] == 2)  # the first one, and a thread that waits
        assert [line for line in lines if "cannot be inspected" in line] == [lines[0]]

        machine.hangs.pop(WEDGED).set()
        until(lambda: containers.read() and not containers.unread)
        assert set(containers.containers) == {rank.container, WEDGED}


def test_an_engine_that_runs_on_stays_as_it_was_read(world: World, machine: Machine) -> None:
    _, rank, container = started(world)
    machine.containers[rank.container]["Created"] = "1970-01-01T00:00:00Z"
    with closing(reader(world, [])) as containers:
        assert containers.read()
        machine.hangs[rank.container] = threading.Event()
        assert containers.read()
        assert containers.containers[rank.container] == replace(container, created_at=0.0)

        machine.containers[rank.container]["State"]["Status"] = "exited"
        assert containers.read()
        assert set(containers.unread) == {WEDGED, rank.container}
        machine.hangs[rank.container].set()


def test_an_unknown_container_loads_for_its_leader_and_is_neither_created_nor_started(
    world: World, machine: Machine, tmp_path: Path
) -> None:
    active, rank, _ = started(world)
    state, node, lines = State(tmp_path / "state", lambda: BOOT), Node(machine, world.home), list[str]()
    state.write_record("chat", Record(term=1, copy=Journal("chat", "n1", revision=5, active=active), armed=rank))
    follower: Any = Follower(state, node, lines.append)  # type: ignore[arg-type]
    follower._reader.inspect_s = 0.2
    began = Journal("other", "n1").begun("i1", Mode.FIRST, OTHER, automatic=True)

    follower.poll()
    follower.handle("other", order(began, "n1", BOOT.boot))
    until(lambda: follower.poll() or follower.handle("chat", None).engine(rank.container).state is EngineState.HEALTHY)

    assert follower.handle("other", None).engine(WEDGED).state is EngineState.LOADING
    assert not follower._service("other").loads, "it does not run as far as Docker lists: chat may start its engine"
    assert follower._service("other").job is None
    assert not any(line.startswith(("docker start", "docker rm", "docker create")) for line in machine.ran[1:])
    follower.close()


def test_orders_are_followed_while_docker_does_not_say_who_ended_an_engine(
    world: World, machine: Machine, tmp_path: Path
) -> None:
    """The boot record does not start it: an operator may have stopped it. The deploy that replaces it goes on."""
    machine.hangs.pop(WEDGED).set()
    del machine.containers[WEDGED]
    active, rank, _ = started(world)
    machine.stop(rank.container)
    state, node, lines = State(tmp_path / "state", lambda: BOOT), Node(machine, world.home, mute=True), list[str]()
    journal = Journal("chat", "n1", revision=5, active=active)
    state.write_record("chat", Record(term=1, copy=journal, armed=rank))
    follower: Any = Follower(state, node, lines.append)  # type: ignore[arg-type]
    service = follower._service("chat")
    new = rank_spec(engine_spec.of(rank).model_copy(update={"slot": Slot.GREEN}), "n1")
    target = Deployment("chat-2", Slot.GREEN, (Replica((new,)),))
    began = journal.begun("i1", Mode.BESIDE, target, automatic=True)

    follower.poll()
    service.start(rank.container).run.ended_s = -1e9  # it ended long ago
    follower.poll()
    until(lambda: any("unknown whether an operator stopped it" in line for line in lines))
    follower.handle("chat", order(began, "n1", BOOT.boot))
    follower.poll()
    until(lambda: any(line.startswith("docker create") for line in machine.ran[1:]))

    assert not any(line.startswith("docker start") for line in machine.ran)
    node.mute = False
    until(lambda: follower.poll() or service.start(rank.container).run.checked)
    follower.close()
