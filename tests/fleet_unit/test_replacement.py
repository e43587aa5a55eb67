"""A guard gives way to another version and comes back if that one does not start; its journals are read first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sparkops.agents import agents
from sparkops.command import Command, Completed
from sparkops.errors import Interrupted, NotReady, StartFailed
from sparkops.guard import replacing
from sparkops.guard_client import commands as guard
from sparkops.guard_client.commands import ASIDE, CONTAINER
from sparkops.nodes.connected import Member
from sparkops.nodes.node import OnLine
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import IMAGE, Machine, inspect
from tests.fleet_unit.nodes import MachineNode
from tests.fleet_unit.world import World


@pytest.fixture
def world(make: Make) -> World:
    return make(1)


@pytest.fixture
def machine(world: World) -> Machine:
    """A node whose guard is of another version."""
    outdated = world.machines["n1"]
    outdated.containers[CONTAINER]["HostConfig"]["RestartPolicy"]["Name"] = "always"
    return outdated


@pytest.fixture
def member(world: World) -> Iterator[Member]:
    with world.order() as order:
        yield order.connected.members["n1"]


def ensure(world: World, member: Member) -> bool:
    return agents.ensure_guard(member, agents.guard_order({**TEMPLATES}, {"a.py": b""}, "debian:x"), world.receive)


TEMPLATES = {"guard/Dockerfile.j2": "FROM {{ image | image }}\n"}


def changed(machine: Machine) -> list[str]:
    """The verbs of Docker that changed containers, in order."""
    return [line.split()[1] for line in machine.ran if line.split()[1] not in ("exec", "rmi", "volume")]


def test_the_old_guard_is_kept_until_the_new_one_answers(world: World, machine: Machine, member: Member) -> None:
    old = machine.containers[CONTAINER]

    assert ensure(world, member)

    assert machine.containers[CONTAINER] is not old
    assert machine.containers[CONTAINER]["State"]["Running"]
    assert ASIDE not in machine.containers
    assert changed(machine) == ["run", "run", "update", "stop", "rename", "run", "rm", "update", "rm"]
    assert guard.REPLACEMENT not in machine.containers


def test_the_old_guard_comes_back_where_the_new_one_does_not_start(
    world: World, machine: Machine, member: Member
) -> None:
    old = machine.containers[CONTAINER]
    machine.fails = lambda line: int(f"run --detach --name={CONTAINER} " in line)

    with pytest.raises(StartFailed, match="the new guard does not answer; the old one runs again"):
        ensure(world, member)

    assert machine.containers[CONTAINER] is old
    assert (old["State"]["Running"], old["HostConfig"]["RestartPolicy"]["Name"]) == (True, "always")
    assert ASIDE not in machine.containers


def test_a_guard_that_cannot_read_the_journals_changes_nothing(world: World, machine: Machine, member: Member) -> None:
    machine.fails, machine.complaint = lambda line: int("sparkops.guard.check" in line), "chat/journal: unreadable"
    old = machine.containers[CONTAINER]

    with pytest.raises(NotReady, match=r"(?s)guard not replaced: .*chat/journal: unreadable") as refused:
        ensure(world, member)

    assert (refused.value.exit_code, machine.containers[CONTAINER] is old) == (5, True)
    assert changed(machine) == ["run"]


def test_a_replacement_that_was_interrupted_is_finished(world: World, machine: Machine, member: Member) -> None:
    machine.containers[ASIDE] = machine.containers.pop(CONTAINER)

    assert ensure(world, member)

    assert machine.containers[CONTAINER]["State"]["Running"]
    assert ASIDE not in machine.containers


def test_a_client_that_ends_leaves_no_node_without_a_guard(world: World, machine: Machine, member: Member) -> None:
    old = machine.containers[CONTAINER]
    member.node.cancel.set()
    machine.program = lambda arguments: 0 * len(arguments)  # not at its first command yet

    with pytest.raises(Interrupted, match="this continues on the node"):
        ensure(world, member)

    assert changed(machine) == ["run", "run"]
    assert (machine.containers[CONTAINER] is old, old["State"]["Running"]) == (True, True)


def test_the_next_client_waits_for_a_replacement_and_keeps_its_result(
    world: World, machine: Machine, member: Member
) -> None:
    assert ensure(world, member)
    ended = inspect(guard.REPLACEMENT, {}, "exited")
    machine.containers[guard.REPLACEMENT], new = ended, machine.containers[CONTAINER]
    machine.containers[CONTAINER] = inspect(CONTAINER, {}, "running")
    world.listeners[f"waiting for {guard.REPLACEMENT}, which another client has started"] = lambda: (
        machine.containers.update({CONTAINER: new})
    )

    assert ensure(world, member)

    assert machine.containers[CONTAINER] is new
    assert guard.REPLACEMENT not in machine.containers


class Killed(BaseException):
    """The program ends between two commands."""


@dataclass
class Mortal(MachineNode):
    """A node on which the program may still run so many commands."""

    commands: int = 0

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        if not self.commands:
            raise Killed
        self.commands -= 1
        return super().run(command, stdin=stdin, on_line=on_line)


@pytest.mark.parametrize("commands", range(10))
def test_a_client_that_ends_at_any_command_leaves_a_guard(
    world: World, machine: Machine, member: Member, tmp_path: Path, commands: int
) -> None:
    with suppress(Killed):
        ensure(world, replace(member, node=Mortal(machine, tmp_path, commands=commands)))

    assert machine.containers[CONTAINER]["State"]["Running"]
    ensure(world, member)
    assert ASIDE not in machine.containers
    ended = machine.containers.get(guard.REPLACEMENT)
    assert ended is None or ended["HostConfig"]["RestartPolicy"]["Name"] == "no"


@pytest.mark.parametrize("reboots", [False, True], ids=["killed", "rebooted"])
@pytest.mark.parametrize("answers", [True, False], ids=["the new one answers", "it does not"])
@pytest.mark.parametrize("commands", range(10))
def test_a_replacement_continues_after_its_end_at_any_command(
    machine: Machine, tmp_path: Path, commands: int, answers: bool, reboots: bool
) -> None:
    machine.containers[CONTAINER] = inspect(CONTAINER, {"sparkops.inputs": "old"}, "running")
    machine.containers[CONTAINER]["HostConfig"]["RestartPolicy"]["Name"] = "always"
    machine.fails = lambda line: int("sparkops.guard.ask" in line and not answers)

    with suppress(Killed):
        replacing.replace(Mortal(machine, tmp_path, commands=commands), IMAGE, "new", 0.0)
    if reboots:
        machine.reboot()
    assert len(running(machine)) <= 1
    problem = replacing.replace(MachineNode(machine, tmp_path), IMAGE, "new", 0.0)

    assert (problem == "") == answers
    assert running(machine) == ["new" if answers else "old"]
    kept = machine.containers[CONTAINER]
    assert kept["HostConfig"]["RestartPolicy"]["Name"] == "always"
    assert ASIDE not in machine.containers


def running(machine: Machine) -> list[str]:
    """The versions of the guards that run."""
    known = [machine.containers[name] for name in (CONTAINER, ASIDE) if name in machine.containers]
    return [container["Config"]["Labels"]["sparkops.inputs"] for container in known if container["State"]["Running"]]
