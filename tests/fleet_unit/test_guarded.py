"""Questions to a guard: in a thread of its own, and once in a real process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from sparkops.command import Command
from sparkops.commands.guard import SERVE
from sparkops.errors import (
    CommandFailed,
    ConnectionLost,
    NodeError,
)
from sparkops.fleet import held as locks
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.guarded import MOST, Link
from sparkops.nodes.local import LocalNode
from sparkops.nodes.node import Stream
from sparkops.nodes.output import KEEP
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.locks import ANN, CUT, hold, left, problem


def test_what_a_command_printed_comes_back_and_a_failure_with_its_code(make: Make) -> None:
    world = make(1)

    with hold(world, nodes=("n1",)) as held:
        done = held.run("n1", CUT)
        with pytest.raises(CommandFailed) as caught:
            held.run("n1", Command(("docker", "start", "nobody")))

    assert (done.node, done.exit_code, done.stdout) == ("n1", 0, "0\n")
    assert str(caught.value) == "n1: `docker start nobody` ended with code 1: docker start nobody failed"


def test_a_journal_that_cannot_be_read_keeps_its_exit_code(make: Make) -> None:
    world = make(2)
    world.stores["n2"].directory.mkdir()
    (world.stores["n2"].directory / "chat.json").write_text("{")

    error = problem(world)

    assert (error.exit_code, left(world, "n1")) == (7, {"n1": 0})
    assert str(error).startswith("n2: the journal ")


@dataclass(frozen=True)
class ProcessNode:
    """This machine, whose guard answers as a process of its own."""

    state: Path
    name: str = "n1"
    argv: tuple[str, ...] = (sys.executable, "-m", "sparkops.guard.serve")
    cancel: threading.Event = field(default_factory=threading.Event)

    def pipe(self, command: Command) -> Stream:
        assert command == SERVE
        env = (f"SPARKOPS_STATE={self.state}", f"SPARKOPS_NODE={self.name}")
        return LocalNode(self.name).pipe(Command(("env", *env, *self.argv)))


@pytest.fixture
def connected(make: Make) -> Iterator[Connected]:
    with make(1).order() as order:
        yield order.connected


def with_node(connected: Connected, node: ProcessNode) -> Connected:
    member = connected.members["n1"]
    return replace(connected, members={"n1": Member("n1", member.config, node, member.engine)})  # type: ignore[arg-type]


def test_a_guard_in_a_process_of_its_own_keeps_the_lock(connected: Connected, tmp_path: Path) -> None:
    with locks.hold(with_node(connected, ProcessNode(tmp_path / "state")), ["n1"], ANN) as held:
        done = held.run("n1", Command(("sh", "-c", "cat; echo $SPARKOPS_NODE"), stdin=b"from "))

    assert done.stdout == "from n1\n"
    assert (tmp_path / "state" / "chat.json").exists()


NOT_BEGUN = (
    "OCI runtime exec failed: exec failed: unable to start container process: "
    "waiting for init preliminary setup: read init-p: connection reset by peer: unknown"
)
BEGUN_LATER = (
    'echo >>"$1"; [ "$(wc -l <"$1")" -ge "$2" ] || { echo "$3"; exit 126; }; exec "$4" -m sparkops.guard.serve'
)
"""A guard's program in whose place Docker speaks at first."""


def begun_later(home: Path, at: int, said: str) -> ProcessNode:
    argv = ("sh", "-c", BEGUN_LATER, "sh", str(home / "tries"), str(at), said, sys.executable)
    return ProcessNode(home / "state", argv=argv)


def test_a_guard_that_docker_could_not_begin_is_asked_again(connected: Connected, tmp_path: Path) -> None:
    node = begun_later(tmp_path, 3, NOT_BEGUN)

    with locks.hold(with_node(connected, node), ["n1"], ANN) as held:
        assert held.run("n1", Command(("echo", "well"))).stdout == "well\n"


@pytest.mark.parametrize(("said", "tries"), [(NOT_BEGUN, 3), ("OCI runtime exec failed: no such file", 1)])
def test_what_docker_says_in_the_place_of_a_guard_is_told(
    connected: Connected, tmp_path: Path, said: str, tries: int
) -> None:
    node = begun_later(tmp_path, 9, said)

    with (
        pytest.raises(ConnectionLost, match=f"n1: the guard could not be asked `acquire`: {said}"),
        locks.hold(with_node(connected, node), ["n1"], ANN),
    ):
        pytest.fail("the lock was taken")
    assert (tmp_path / "tries").read_text() == "\n" * tries


@pytest.mark.parametrize("said", ["", '{"ok": {"jour'], ids=["nothing", "half an answer"])
def test_a_guard_that_ends_is_a_lost_connection(connected: Connected, tmp_path: Path, said: str) -> None:
    dying = ProcessNode(tmp_path, argv=("sh", "-c", f"read line; printf '{said}'"))

    with (
        pytest.raises(ConnectionLost, match="n1: the guard ended before it answered `acquire`"),
        locks.hold(with_node(connected, dying), ["n1"], ANN),
    ):
        pytest.fail("the lock was taken")


def test_an_answer_without_end_is_refused(tmp_path: Path) -> None:
    endless = f"import sys; sys.stdin.readline()\nfor _ in range({2 * MOST // KEEP}): print('x' * {KEEP}, end='')"
    node = ProcessNode(tmp_path / "state", argv=(sys.executable, "-c", endless))

    with closing(Link(node)) as link, closing(link.lines), pytest.raises(NodeError) as caught:  # type: ignore[arg-type]
        link.ask("read", "chat")

    assert str(caught.value) == f"n1: the guard answered `read` with more than {MOST} characters; stopped"
    assert caught.value.next_step == "docker logs sparkops-guard, on n1"
