"""This machine as the only node: a `docker` program with a small API, and the real guard as its own process."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sparkops.commands.guard import SERVE
from sparkops.guard.store import Store
from sparkops.nodes.engine import DIAL
from tests.cli.conftest import Ran
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


@dataclass(frozen=True)
class Here:
    """sparkops as a program in `directory`, and the journals of the guard that it uses."""

    directory: Path
    guard: Store

    def __call__(self, *argv: str) -> Ran:
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(self.directory)}
        command = [sys.executable, "-m", "sparkops", "--inventory", "inventory.yaml", *argv]
        done = subprocess.run(command, cwd=self.directory, env=env, capture_output=True, text=True, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)


def install(directory: Path) -> Here:
    """Make an inventory and a `docker` program in `directory`."""
    (directory / "inventory.yaml").write_text(INVENTORY)
    program, state = directory / "bin/docker", directory / "state"
    program.parent.mkdir()
    dial, serve = (" ".join(command.argv[1:]) for command in (DIAL, SERVE))
    words = {"root": ROOT, "state": state, "python": sys.executable}
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    program.write_text(PROGRAM.format(dial=dial, serve=serve, **quoted))
    program.chmod(0o755)
    return Here(directory, Store(state))


if __name__ == "__main__":
    converse(socket.socket(fileno=0), Machine("here", "127.0.0.1").api)
