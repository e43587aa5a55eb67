"""This machine as the only node: a `docker` program with a small API, and a scripted guard as its own process."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sparkops.guard_client.commands import ASK
from sparkops.nodes.docker_api import DIAL
from tests.cli.conftest import Ran
from tests.fleet_unit.listener import converse
from tests.fleet_unit.machine import Machine
from tests.guard_peer import Peer

ROOT = Path(__file__).parent.parent.parent
INVENTORY = "nodes:\n  here: {transport: local}\ngateway: {node: here, address: 127.0.0.1}\n"
PROGRAM = """#!/bin/sh
export PYTHONPATH={root}
case "$*" in
"{dial}") exec {python} -m tests.cli.here ;;
"{ask}") exec {python} -m tests.guard_peer {peer} here ;;
esac
exit 1
"""


@dataclass(frozen=True)
class Here:
    """sparkops as a program in `directory`, and the scripted guard that it uses."""

    directory: Path
    peer: Peer

    def __call__(self, *argv: str) -> Ran:
        process = self.start(*argv)
        out, err = process.communicate()
        return Ran(process.returncode, out, err)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a verb."""
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(self.directory)}
        command = [sys.executable, "-m", "sparkops", "--inventory", "inventory.yaml", *argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.directory, env=env, stdout=pipe, stderr=pipe, text=True)


def install(directory: Path) -> Here:
    """Make an inventory and a `docker` program in `directory`."""
    (directory / "inventory.yaml").write_text(INVENTORY)
    program = directory / "bin/docker"
    program.parent.mkdir()
    peer = Peer(directory / "peer", "here", ("here",))
    peer.directory.mkdir()
    dial, ask = (" ".join(command.argv[1:]) for command in (DIAL, ASK))
    words = {"root": ROOT, "python": sys.executable, "peer": peer.directory}
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    program.write_text(PROGRAM.format(dial=dial, ask=ask, **quoted))
    program.chmod(0o755)
    return Here(directory, peer)


if __name__ == "__main__":
    converse(socket.socket(fileno=0), Machine("here", "127.0.0.1").api)
