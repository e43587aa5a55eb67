"""`-v`: every command on stderr, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Sparkops

READS = ["here: docker API GET /version", "here: docker system dial-stdio"]
ASKS = "here: sh -c 'docker version --format ok 2>&1 || true'"
REFUSED = "here: the user may not use Docker"


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A local node whose Docker refuses everything; returns the directory of the program."""
    (tmp_path / "inventory.yaml").write_text("nodes:\n  here: {transport: local}\n")
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho permission denied\nexit 1\n")
    program.chmod(0o755)
    return program.parent


def with_docker(docker: Path) -> str:
    return f"{docker}:{os.environ['PATH']}"


def test_status_prints_every_command_on_stderr(
    sparkops: Sparkops, docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", with_docker(docker))

    plain, verbose, again = sparkops("status"), sparkops("-v", "status"), sparkops("status")

    assert plain.err == again.err == "here: the user may not use Docker\n"
    assert (verbose.code, verbose.out) == (plain.code, plain.out)
    assert verbose.err.splitlines() == [*READS, ASKS, REFUSED]


def test_json_stays_alone_on_stdout(sparkops: Sparkops, docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", with_docker(docker))

    ran = sparkops("-v", "status", "--json")

    assert ran.json["nodes"][0]["name"] == "here"
    assert ASKS in ran.err


@pytest.mark.local
@pytest.mark.parametrize(("options", "coloured"), [(["-v"], True), (["-v", "--no-color"], False)])
def test_commands_are_coloured_only_on_a_terminal_that_wants_it(
    tmp_path: Path, docker: Path, options: list[str], *, coloured: bool
) -> None:
    ours, theirs = os.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"PATH": with_docker(docker)}
    command = [sys.executable, "-m", "sparkops", *options, "status"]
    subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env=env, check=False)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)

    [line] = [each for each in shown.splitlines() if "docker API GET /version" in each]
    assert ("\x1b[" in line) is coloured
