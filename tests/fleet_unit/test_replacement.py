"""Guard and gateway give way to another version and come back if that one does not start; the client may end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sparkops.command import Command, Completed
from sparkops.errors import Interrupted, NotReady, StartFailed
from sparkops.gateway.commands import CONTAINER as GATEWAY
from sparkops.guard import replacing
from sparkops.node.agents.commands import CONTAINER as GUARD
from sparkops.node.member import Member
from sparkops.node.node import OnLine
from sparkops.node.waiting import Waiting
from sparkops.operator.deploy.agents import agents, gateway_agent
from sparkops.operator.deploy.agents.agents import AgentSpecs
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import IMAGE, Machine, inspect
from tests.fleet_unit.nodes import MachineNode
from tests.fleet_unit.world import World


@dataclass(frozen=True)
class Case:
    """One agent. `answers` is in the command that asks whether it does, `steps` are those of its replacement."""

    name: str
    container: str
    answers: str
    version: tuple[str, ...]
    steps: tuple[str, ...]

    @property
    def aside(self) -> str:
        return f"{self.container}-old"

    @property
    def replacement(self) -> str:
        return f"{self.container}-replacement"


CHECKED, BEGUN, ENDED = "run", "run", ("update", "rm")
CASES = (
    Case(
        name="guard",
        container=GUARD,
        answers="sparkops.guard.ask",
        version=("guard", "n1", "new"),
        steps=(CHECKED, BEGUN, "update", "stop", "rename", "run", "rm", *ENDED),
    ),
    Case(
        name="gateway",
        container=GATEWAY,
        answers="gateway show",
        version=("gateway", "n1", "new", "1536"),
        steps=(BEGUN, "update", "rename", "run", "stop", "rm", *ENDED),
    ),
)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    agent: Case = request.param
    return agent


@pytest.fixture
def world(make: Make) -> World:
    return make(1)


@pytest.fixture
def machine(world: World) -> Machine:
    """A node whose guard and gateway are of another version."""
    outdated = world.machines["n1"]
    for name in (GUARD, GATEWAY):
        outdated.containers[name]["HostConfig"]["RestartPolicy"]["Name"] = "always"
    return outdated


@dataclass(frozen=True)
class Change:
    """What brings an agent up to date, and on which node."""

    case: Case
    world: World
    member: Member
    specs: AgentSpecs

    def ensure(self) -> bool:
        if self.case.name == "guard":
            return agents.ensure_guard(self.member, self.specs.guard, self.world.receive)
        assert self.specs.gateway
        return gateway_agent.ensure(
            self.member, self.specs.gateway, self.specs.guard, self.world.receive, apply_gateway=True
        )


@pytest.fixture
def change(case: Case, world: World) -> Iterator[Change]:
    with world.order() as order:
        specs = agents.load(order.connected.fleet)
        yield Change(case, world, order.connected.members["n1"], specs)


def changed(machine: Machine) -> list[str]:
    """The verbs of Docker that changed containers, in order."""
    return [line.split()[1] for line in machine.ran if line.split()[1] not in ("exec", "rmi", "volume")]


def test_the_old_container_is_kept_until_the_new_one_answers(case: Case, machine: Machine, change: Change) -> None:
    old = machine.containers[case.container]

    assert change.ensure()

    assert machine.containers[case.container] is not old
    assert machine.runs(case.container)
    assert case.aside not in machine.containers
    assert changed(machine) == [*case.steps]
    assert case.replacement not in machine.containers


@pytest.mark.parametrize("fault", ["its container cannot be created", "it does not answer"])
def test_the_old_container_comes_back_where_the_new_one_does_not_start(
    case: Case, machine: Machine, change: Change, fault: str
) -> None:
    old = machine.containers[case.container]
    fails = f"run --detach --name={case.container} " if "created" in fault else case.answers
    machine.fails = lambda line: int(fails in line)

    with pytest.raises(StartFailed, match=f"n1: the new {case.name} does not answer; the old one runs again: "):
        change.ensure()

    assert machine.containers[case.container] is old
    assert (old["State"]["Running"], old["HostConfig"]["RestartPolicy"]["Name"]) == (True, "always")
    assert case.aside not in machine.containers
    assert ("stop" in changed(machine)) == (case.name == "guard"), "the old gateway serves all the while"


@pytest.mark.parametrize("case", [CASES[1]], indirect=True, ids=lambda case: case.name)
@pytest.mark.parametrize("fault", ["HAProxy does not answer: no socket", "HAProxy does not run with its files"])
def test_a_gateway_that_does_not_load_the_files_of_the_volume_gives_way(
    machine: Machine, change: Change, fault: str
) -> None:
    old, gate = machine.containers[GATEWAY], machine.gate
    assert gate
    gate.files, gate.loaded = {"gateway.cfg": "0" * 64}, False
    gate.problem = fault if "socket" in fault else ""

    with pytest.raises(StartFailed, match=f"(?s)the old one runs again: .*{fault}") as failed:
        change.ensure()

    assert (failed.value.exit_code, machine.containers[GATEWAY] is old) == (1, True)


def test_a_gateway_whose_volume_is_empty_is_replaced(world: World, machine: Machine) -> None:
    assert machine.gate
    machine.gate.problem = "HAProxy does not answer: it waits for its first files"

    assert replacing.replace(world.node("n1"), replacing.parse(*CASES[1].version), IMAGE, 0.0) == ""


@pytest.mark.parametrize("case", [CASES[0]], indirect=True, ids=lambda case: case.name)
def test_a_guard_that_cannot_read_the_journals_changes_nothing(machine: Machine, change: Change) -> None:
    machine.fails = lambda line: int("sparkops.guard.check" in line)
    machine.complaint = "chat/journal: unreadable: Journal has format 1, expected 2\n  next: With version 0.1.0: stop"
    old = machine.containers[GUARD]

    with pytest.raises(NotReady, match=r"(?s)guard not replaced: .*chat/journal: unreadable") as refused:
        change.ensure()

    assert (refused.value.exit_code, machine.containers[GUARD] is old) == (5, True)
    assert refused.value.next_step == "With version 0.1.0: stop"
    assert changed(machine) == ["run"]


def test_a_replacement_whose_program_was_removed_is_finished(case: Case, machine: Machine, change: Change) -> None:
    machine.containers[case.aside] = machine.containers.pop(case.container)

    assert change.ensure()

    assert machine.runs(case.container)
    assert case.aside not in machine.containers


def test_two_versions_that_run_after_the_end_of_the_program_become_one(
    case: Case, machine: Machine, change: Change
) -> None:
    old = machine.containers[case.container]
    assert change.ensure()
    machine.containers[case.aside], new = old, machine.containers[case.container]

    assert change.ensure()

    assert machine.containers[case.container] is new
    assert case.aside not in machine.containers


def test_a_client_that_ends_leaves_no_node_without_an_agent(case: Case, machine: Machine, change: Change) -> None:
    old = machine.containers[case.container]
    change.member.node.cancel.set()
    machine.program = lambda arguments: 0 * len(arguments)  # not at its first command yet

    with pytest.raises(Interrupted, match=f"the {case.name} is being replaced; this continues on the node"):
        change.ensure()

    assert changed(machine) == [*case.steps[: case.steps.index("update")]]
    assert (machine.containers[case.container] is old, old["State"]["Running"]) == (True, True)


def test_the_next_client_waits_for_a_replacement_and_keeps_its_result(
    case: Case, world: World, machine: Machine, change: Change
) -> None:
    assert change.ensure()
    ended = inspect(case.replacement, {}, "exited")
    machine.containers[case.replacement], new = ended, machine.containers[case.container]
    machine.containers[case.container] = inspect(case.container, {}, "running")
    world.listeners[f"waiting for {case.replacement}, which another client has started"] = lambda: (
        machine.containers.update({case.container: new})
    )

    assert change.ensure()

    assert machine.containers[case.container] is new
    assert case.replacement not in machine.containers


def test_a_gateway_that_moves_is_removed_after_the_replacement_of_another_client(make: Make) -> None:
    world = make(2)
    machine = world.machines["n2"]
    machine.give_gateway()
    machine.containers[f"{GATEWAY}-replacement"] = inspect(f"{GATEWAY}-replacement", {}, "exited")
    machine.containers[f"{GATEWAY}-old"] = inspect(f"{GATEWAY}-old", {}, "running")
    with world.order() as order:
        specs = agents.load(order.connected.fleet)
        assert specs.gateway
        agent = gateway_agent.agent("n2", specs.gateway, specs.guard)

        assert gateway_agent.remove(order.connected.members["n2"], agent, world.receive)

    assert {*machine.containers} == {GUARD}
    assert [event.text.split()[0] for event in world.events] == ["waiting", "removing"]


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
def test_a_client_that_ends_at_any_command_leaves_an_agent(
    case: Case, machine: Machine, change: Change, tmp_path: Path, commands: int
) -> None:
    mortal = replace(change.member, node=Mortal(machine, tmp_path, commands=commands))
    with suppress(Killed):
        replace(change, member=mortal).ensure()

    assert machine.runs(case.container)
    change.ensure()
    assert machine.runs(case.container)
    assert case.aside not in machine.containers
    ended = machine.containers.get(case.replacement)
    assert ended is None or ended["HostConfig"]["RestartPolicy"]["Name"] == "no"


@pytest.mark.parametrize("reboots", [False, True], ids=["killed", "rebooted"])
@pytest.mark.parametrize("answers", [True, False], ids=["the new one answers", "it does not"])
@pytest.mark.parametrize("commands", range(10))
def test_a_replacement_continues_after_its_end_at_any_command(
    case: Case, machine: Machine, tmp_path: Path, commands: int, answers: bool, reboots: bool
) -> None:
    machine.containers[case.container] = inspect(case.container, {"sparkops.inputs": "old"}, "running")
    machine.containers[case.container]["HostConfig"]["RestartPolicy"]["Name"] = "always"
    machine.fails = lambda line: int(case.answers in line and not answers)
    agent = replacing.parse(*case.version)

    with suppress(Killed):
        replacing.replace(Mortal(machine, tmp_path, commands=commands), agent, IMAGE, 0.0)
    if agent.overlaps:
        assert running(machine, case) != [], "clients are served at every step"
    if reboots:
        machine.reboot()
    if reboots or not agent.overlaps:
        assert len(running(machine, case)) <= 1
    problem = replacing.replace(MachineNode(machine, tmp_path), agent, IMAGE, 0.0)

    assert (problem == "") == answers
    assert running(machine, case) == ["new" if answers else "old"]
    kept = machine.containers[case.container]
    assert kept["HostConfig"]["RestartPolicy"]["Name"] == "always"
    assert case.aside not in machine.containers


def test_the_old_agent_runs_before_a_full_disk_takes_its_restart_policy(
    case: Case, machine: Machine, tmp_path: Path
) -> None:
    machine.containers[case.container] = inspect(case.container, {"sparkops.inputs": "old"}, "running")
    machine.containers[case.container]["HostConfig"]["RestartPolicy"]["Name"] = "always"
    ran_meanwhile: list[list[str]] = []

    def fails(line: str) -> int:
        if "update --restart=always" in line and len(ran_meanwhile) < 3:
            ran_meanwhile.append(running(machine, case))
            return 1
        return int("docker run --detach" in line)

    machine.fails, machine.complaint = fails, "no space left on device"
    problem = replacing.replace(
        MachineNode(machine, tmp_path), replacing.parse(*case.version), IMAGE, 0.0, Waiting(0.0)
    )

    assert "no space left on device" in problem
    assert ran_meanwhile == [["old"]] * 3
    kept = machine.containers[case.container]
    assert (running(machine, case), kept["HostConfig"]["RestartPolicy"]["Name"]) == (["old"], "always")


def running(machine: Machine, case: Case) -> list[str]:
    """The versions of an agent that run."""
    known = [machine.containers[name] for name in (case.container, case.aside) if machine.runs(name)]
    return [container["Config"]["Labels"]["sparkops.inputs"] for container in known]
