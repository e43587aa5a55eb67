"""sparkops from the fork server: it behaves as the program does."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from tests import fork_server

pytestmark = pytest.mark.local

PROGRAM = (sys.executable, "-m", "sparkops")
LONG = ["recipe", "schema", "recipe"]
ROOM = 4096
"""Bytes in a pipe, fewer than LONG prints."""


def run(program: tuple[str, ...], *argv: str, **options: Any) -> tuple[int, str, str]:
    ran = subprocess.run([*program, *argv], capture_output=True, text=True, check=False, **options)
    return ran.returncode, ran.stdout, ran.stderr


@contextmanager
def stuck() -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    """Start a program that waits until its output is read, of which the pipe holds a part."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, ROOM)
    with os.fdopen(reader, "rb") as output, subprocess.Popen([*fork_server.command(), *LONG], stdout=writer) as process:
        os.close(writer)
        yield process, output


@pytest.mark.parametrize("argv", [["recipe", "show", "nonsense"], LONG, ["deploy", "--nonsense"]], ids=" ".join)
def test_output_and_exit_code_are_those_of_the_program(argv: list[str]) -> None:
    forked, started = (run(program, *argv) for program in (fork_server.command(), PROGRAM))

    assert forked == started


def test_directory_and_environment_are_the_caller_s(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARKOPS_INVENTORY": "mine.yaml"}

    code, _, err = run(fork_server.command(), "status", cwd=tmp_path, env=environment)

    assert code == 2
    assert "mine.yaml" in err
    assert "mine.yaml" not in run(fork_server.command(), "status", cwd=tmp_path)[2]


def test_a_killed_client_takes_its_process_along() -> None:
    with stuck() as (process, output):
        assert process.poll() is None
        process.kill()

        assert len(output.read()) <= ROOM  # to its end, which comes at once
        assert process.wait() == -signal.SIGKILL


def test_several_run_at_once() -> None:
    with stuck() as (waiting, output):
        assert run(fork_server.command(), "recipe", "show", "nonsense")[0] == 2
        assert waiting.poll() is None
        assert len(output.read()) > ROOM
