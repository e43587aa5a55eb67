"""This machine as the only node: a `docker` program with a small API, and the real guard as its own process."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from pathlib import Path

import pytest

from sparkops.commands.guard import SERVE
from sparkops.guard.store import Store
from sparkops.nodes.engine import DIAL
from tests.fleet_unit.listener import converse
from tests.fleet_unit.machine import Machine

ROOT = Path(__file__).parent.parent.parent
INVENTORY = "nodes:\n  here: {transport: local}\ngateway: {node: here, address: 127.0.0.1}\n"
PROGRAM = """#!/bin/sh
export PYTHONPATH={root} SPARKOPS_STATE={state} SPARKOPS_NODE=here
case "$*" in
"{dial}") exec {python} -m tests.cli.here ;;
"{serve}") exec {python} -m sparkops.guard.serve ;;
esac
exit 1
"""


def install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Make an inventory in `directory` and a `docker` first on PATH. Returns the guard's journals."""
    (directory / "inventory.yaml").write_text(INVENTORY)
    program, state = directory / "bin/docker", directory / "state"
    program.parent.mkdir()
    dial, serve = (" ".join(command.argv[1:]) for command in (DIAL, SERVE))
    words = {"root": ROOT, "state": state, "python": sys.executable}
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    program.write_text(PROGRAM.format(dial=dial, serve=serve, **quoted))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return Store(state)


if __name__ == "__main__":
    converse(socket.socket(fileno=0), Machine("here", "127.0.0.1").api)
