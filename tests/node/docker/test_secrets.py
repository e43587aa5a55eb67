"""Secrets of a build: what its command says, and with a real shell where they are while it runs."""

from __future__ import annotations

import signal
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from sparkops.command import Command
from sparkops.errors import CommandFailed, Interrupted
from sparkops.node.docker import commands, secrets
from sparkops.node.local import LocalNode

HIDDEN = {"pip.conf": b"index-url = https://user:canary@h\n", "uv.toml": b""}
LOOK = 'for fd in 5 6; do stat -L -c "%a %h" /proc/self/fd/$fd; cat /proc/self/fd/$fd; done; cat'
"""Prints mode and number of names of each secret, then the secret, and the rest of stdin."""


def test_a_build_gets_its_secrets_on_stdin_and_from_open_files() -> None:
    command = commands.build("t", {}, {}, HIDDEN)

    assert command.argv[:2] == ("sh", "-c")
    assert command.argv[4:] == (
        *("env", "DOCKER_BUILDKIT=1", "BUILDX_BUILDER=default", "docker", "build", "--progress=plain"),
        *("--file=Dockerfile", "--tag=t"),
        *("--secret=id=pip.conf,src=/proc/self/fd/5", "--secret=id=uv.toml,src=/proc/self/fd/6", "-"),
    )
    assert "canary" not in str(command) + repr(command)
    assert command.stdin.count(b"\n") == 2


def test_a_secret_is_written_only_after_its_file_has_lost_its_name() -> None:
    words = commands.build("t", {}, {}, HIDDEN).argv[2].split(" && ")

    order = [next(n for n, word in enumerate(words) if word.startswith(start)) for start in ("rm ", "printf ")]
    assert all(before < after for before, after in pairwise(order))
    assert words[-1] == 'exec "$@"', "a signal reaches docker itself"


@pytest.mark.local
def test_the_program_reads_its_secrets_and_its_own_stdin() -> None:
    command = secrets.hold(Command(("sh", "-c", LOOK), stdin=b"a"), HIDDEN)
    before = names()

    completed = LocalNode("n1").run(command, stdin=iter((b"b", b"c")))

    assert completed.stdout == f"600 0\n{HIDDEN['pip.conf'].decode()}600 0\nabc"
    assert names() == before


@pytest.mark.local
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_file_is_left_of_a_build_that_fails_or_is_killed(number: signal.Signals) -> None:
    before = names()

    with pytest.raises(CommandFailed):
        LocalNode("n1").run(secrets.hold(Command(("sh", "-c", f"kill -{number.value} $$")), HIDDEN))

    assert names() == before


@pytest.mark.local
def test_no_file_is_left_of_a_build_that_is_interrupted() -> None:
    node, before, lines = LocalNode("n1", threading.Event()), names(), list[str]()

    def interrupt(line: str) -> None:
        lines.append(line)
        node.cancel.set()

    with pytest.raises(Interrupted):
        node.run(secrets.hold(Command(("sh", "-c", "echo begun; exec sleep 60")), HIDDEN), on_line=interrupt)

    assert (lines, names()) == (["begun"], before)


@pytest.mark.local
def test_nothing_is_built_when_a_secret_has_not_arrived_whole() -> None:
    wrapped = secrets.hold(Command(("echo", "built")), HIDDEN)
    cut = Command(wrapped.argv, stdin=wrapped.stdin.splitlines(keepends=True)[0])

    with pytest.raises(CommandFailed) as failed:
        LocalNode("n1").run(cut)

    assert failed.value.completed.stdout == ""


def names() -> set[Path]:
    """The files of secrets in memory that have a name."""
    return set(Path("/dev/shm").glob("sparkops.*"))
