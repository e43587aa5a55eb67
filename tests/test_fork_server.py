"""sparkops from the fork server: it behaves as the program does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import fork_server

pytestmark = pytest.mark.local

PROGRAM = (sys.executable, "-m", "sparkops")


def run(program: tuple[str, ...], *argv: str, **options: Any) -> tuple[int, str, str]:
    ran = subprocess.run([*program, *argv], capture_output=True, text=True, check=False, **options)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.parametrize(
    "argv", [["show", "nonsense"], ["lint", "--rules"], ["lint", "-"], ["deploy", "--nonsense"]], ids=" ".join
)
def test_output_and_exit_code_are_those_of_the_program(argv: list[str]) -> None:
    forked, started = (run(program, *argv, input="FROM nowhere") for program in (fork_server.command(), PROGRAM))

    assert forked == started


def test_directory_and_environment_are_the_caller_s(tmp_path: Path) -> None:
    environment = {**os.environ, "SPARKOPS_INVENTORY": "mine.yaml"}

    code, _, err = run(fork_server.command(), "status", cwd=tmp_path, env=environment)

    assert code == 2
    assert "mine.yaml" in err
    assert "mine.yaml" not in run(fork_server.command(), "status", cwd=tmp_path)[2]


def test_a_killed_client_takes_its_process_along() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([*fork_server.command(), "lint", "-"], stdin=pipe, stdout=pipe) as process:
        assert process.poll() is None
        process.kill()

        assert process.stdout
        assert process.stdout.read() == b""  # at once, though its stdin is still open
        assert process.wait() == -signal.SIGKILL


def test_several_run_at_once() -> None:
    pipe = subprocess.PIPE
    words = [*fork_server.command(), "lint", "-"]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as waiting:
        assert run(fork_server.command(), "show", "nonsense")[0] == 2
        assert waiting.poll() is None
        waiting.communicate("FROM nowhere")
