"""The watch over a start outlives a look that fails, whatever the reason: the engine is not taken for a failed one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from sparkops.command import Command, Completed
from sparkops.errors import ConnectionLost
from sparkops.guard.disk.state import State
from sparkops.guard.follow.engine_port import EnginePort
from sparkops.guard.follow.engines import LOG_CHARACTERS, Engines
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.loading import Loading
from sparkops.names import Slot
from sparkops.node import host
from sparkops.node.docker import facts
from sparkops.node.docker.facts import Container
from sparkops.node.node import OnLine
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import order
from tests import examples
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.nodes import MachineNode
from tests.fleet_unit.world import World

PATIENCE_S = 60.0


@dataclass
class Faulty(MachineNode):
    """A node whose memory cannot be read once for each error."""

    errors: list[Exception] = field(default_factory=list)

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        if command == host.MEMORY and self.errors:
            raise self.errors.pop()
        return super().run(command, stdin=stdin, on_line=on_line)


@pytest.fixture
def world(make: Make) -> World:
    return make(1)


def started(world: World) -> tuple[Deployment, RankSpec, Container]:
    """A release whose engine has been started on n1 and answers."""
    release, machine = world.release("1"), world.machines["n1"]
    data = release.recipe.model_dump(mode="json", exclude_defaults=True)
    given = {"recipe": data, "inputs": examples.INPUTS, "image": examples.IMAGE_ID, "slot": Slot.BLUE, "index": 0}
    node = {"address": machine.address, "gpu": "none"}
    spec = EngineSpec.model_validate({**given, "node": node, "address": machine.address, "jobs": 1})
    rank = rank_spec(spec, "n1")
    machine.do(spec.create("n1"))
    machine.start(rank.container)
    container = facts.parse_container("n1", machine.containers[rank.container])
    return Deployment(release.id, Slot.BLUE, (Replica((rank,)),)), rank, container


def test_a_lost_reading_of_memory_fails_no_start(world: World) -> None:
    _, _, container = started(world)
    lost = ConnectionLost("n1", "no reply within 10 s")
    node: Any = Faulty(world.machines["n1"], world.home, errors=[lost])
    shown, answers, cancel = list[str](), list[Answer](), threading.Event()

    port = EnginePort(node, container.port)
    recipe = world.release("1").recipe
    loaded = Loading(node, container, recipe, None, shown.append, cancel, answers.append, port).follow()

    assert loaded is not None
    assert (loaded.problem, shown[0]) == ("", "waiting for Docker: no reply within 10 s")
    assert answers == [Answer.YES, Answer.YES], "what Docker does not answer hides no answer of the engine"


def test_a_guard_reads_a_log_of_very_long_lines(world: World) -> None:
    """Expressions that read such a line again and again kept every thread of the guard waiting for minutes."""
    _, _, container = started(world)
    node: Any = MachineNode(world.machines["n1"], world.home)
    units = ("Loading pt:", "://a:", "a:1", '"a": [', "a.", "(a pid=1)")
    world.machines["n1"].logs[container.release] = "\n".join(unit * (2**20 // len(unit)) for unit in units)
    port, recipe = EnginePort(node, container.port), world.release("1").recipe
    engines = Engines(node, lambda _service, _name: None, lambda _line: None)

    loaded = Loading(node, container, recipe, None, lambda _: None, threading.Event(), lambda _: None, port).follow()
    evidence = engines.evidence(container.name)

    assert loaded is not None
    assert loaded.problem == ""
    assert {len(line) for line in loaded.watch.tail} == {facts.LINE_CHARACTERS}
    assert len(evidence["log.txt"]) == LOG_CHARACTERS


def test_an_error_that_nobody_has_foreseen_fails_no_start(world: World, tmp_path: Path) -> None:
    release, rank, _ = started(world)
    node: Any = Faulty(world.machines["n1"], world.home, errors=[KeyError("unforeseen")])
    lines: list[str] = []
    world.machines["n1"].loads[release.release] = 3  # its start is watched when the error comes
    follower = Follower(State(tmp_path / "state"), node, lines.append)
    follower.jobs.retry_s = 0.1
    journal = Journal("chat", "n1").begun("i1", Mode.FIRST, release, automatic=True)
    while journal.swap and journal.swap.phase is not Phase.LOAD:
        journal = journal.advanced()

    follower.poll()
    follower.handle("chat", order(journal, "n1", follower.state.clock().boot))
    end_s = time.monotonic() + PATIENCE_S
    while follower.handle("chat", None).engine(rank.container).state is not EngineState.HEALTHY:
        assert time.monotonic() < end_s, lines
        follower.poll()
        follower.wait(0.05)
    follower.close()

    assert any("KeyError: 'unforeseen'" in line for line in lines), "its guard says so"
    assert follower.handle("chat", None).engine(rank.container).problem == ""


def test_an_engine_that_is_stopped_while_it_loads_shows_no_progress(world: World, tmp_path: Path) -> None:
    """Otherwise the log of the next deploy begins with the last line of this start."""
    release, rank, _ = started(world)
    world.machines["n1"].loads[release.release] = 10_000
    follower = Follower(State(tmp_path / "state"), cast("Any", MachineNode(world.machines["n1"], world.home)), print)
    journal = Journal("chat", "n1").begun("i1", Mode.FIRST, release, automatic=True)
    while journal.swap and journal.swap.phase is not Phase.LOAD:
        journal = journal.advanced()

    def until(journal: Journal, done: Callable[[], bool]) -> None:
        follower.handle("chat", order(journal, "n1", follower.state.clock().boot))
        end_s = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end_s, (follower.progress("chat"), follower.handle("chat", None))
            follower.poll()
            follower.wait(0.05)

    follower.poll()
    until(journal, lambda: rank.container in follower.progress("chat"))
    until(journal.reverted("it was too slow"), lambda: not world.machines["n1"].runs(rank.container))
    follower.close()

    assert follower.progress("chat") == {}
