"""This machine as the only node: a `docker` program with a small API, and a scripted guard behind it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparkops.guard_client.commands import RELAY
from sparkops.nodes.node import DIAL
from tests import fork_server, relay
from tests.cli.conftest import Ran
from tests.fleet_unit.listener import Listener
from tests.fleet_unit.machine import Machine
from tests.guard_peer import Peer, serve

INVENTORY = "nodes:\n  here: {transport: local}\ngateway: {node: here, address: 127.0.0.1}\n"
PROGRAM = """#!/bin/sh
case "$*" in
"{dial}") {api} ;;
"{ask}") {guard} ;;
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
        env = {**os.environ, "PATH": path, "HOME": str(self.directory)}
        command = [*fork_server.command(), "--inventory", "inventory.yaml", *argv]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.directory, env=env, stdout=pipe, stderr=pipe, text=True)


@contextmanager
def install(directory: Path, *, built: bool = True, inventory: str = INVENTORY) -> Iterator[Here]:
    """Make an inventory and a `docker` program in `directory`. `built`: its node has every image."""
    (directory / "inventory.yaml").write_text(inventory)
    peer = Peer(directory / "peer", "here", ("here",))
    peer.directory.mkdir()
    program = directory / "bin/docker"
    program.parent.mkdir()
    dial, ask = (" ".join(command.argv[1:]) for command in (DIAL, RELAY))
    with closing(Listener("127.0.0.1", 0, Machine("here", "127.0.0.1", built=built).api)) as api, serve(peer) as guard:
        words = {"dial": dial, "ask": ask, "api": relay.line(api.port), "guard": relay.line(guard)}
        program.write_text(PROGRAM.format(**words))
        program.chmod(0o755)
        yield Here(directory, peer)
