"""`-v`: every command on stderr, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.operator.cli.conftest import Sparkops

READS = "here: python3 -c 'import json, sys; "
REFUSED = "here: the user has no access to Docker"


def test_status_prints_every_command_on_stderr(
    sparkops: Sparkops, docker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", docker)

    plain, verbose, repeated = sparkops("status"), sparkops("-v", "status"), sparkops("status")

    assert plain.err == repeated.err == ""
    assert REFUSED in plain.out.splitlines()
    assert (verbose.code, verbose.out) == (plain.code, plain.out)
    lines = verbose.err.splitlines()
    assert lines[:2] == ["here: connect to /run/sparkops/status.sock", "here: connect to /var/run/docker.sock"]
    assert lines[-1].startswith(READS)  # this machine may have a Docker at its default address


def test_json_stays_alone_on_stdout(sparkops: Sparkops, docker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", docker)

    ran = sparkops("-v", "status", "--json")

    assert ran.json["nodes"][0]["name"] == "here"
    assert READS in ran.err


@pytest.mark.local
@pytest.mark.parametrize(("options", "coloured"), [(["-v"], True), (["-v", "--no-color"], False)])
def test_commands_are_coloured_only_on_a_terminal_that_wants_it(
    tmp_path: Path, docker: str, options: list[str], *, coloured: bool
) -> None:
    ours, theirs = os.openpty()
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"PATH": docker}
    command = [sys.executable, "-m", "sparkops", *options, "status"]
    subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env=env, check=False)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)

    [line] = [line for line in shown.splitlines() if "here: python3 -c" in line]
    assert ("\x1b[" in line) is coloured
