"""This machine as the only node: a `docker` program with a small API, and a scripted guard behind it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from sparkops.config import inventory as inventories
from sparkops.gateway.facts import parse_gateway
from sparkops.node.agents.commands import RELAY
from sparkops.node.agents.replaceable import guard_version
from sparkops.node.node import DIAL
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.deploy.agents import agents, gateway_agent
from tests import fork_server, relay
from tests.fleet_unit.gate import Gate
from tests.fleet_unit.listener import Listener
from tests.fleet_unit.machine import Facts, Machine, inspect
from tests.guard_peer import Peer, serve
from tests.operator.cli.conftest import Ran

INVENTORY = "nodes:\n  here: {transport: local}\ngateway: {node: here, address: 127.0.0.1}\n"
PROGRAM = """#!/bin/sh
case "$*" in
"{dial}") {api} ;;
"{ask}") {guard} ;;
{answers}esac
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
def install(
    directory: Path,
    *,
    built: bool = True,
    inventory: str = INVENTORY,
    service: Service | None = None,
    answers: Mapping[str, str] = {},
    containers: Mapping[str, Facts] = {},
) -> Iterator[Here]:
    """Make an inventory and a `docker` program in `directory`. `built`: its node has every image.

    With `service`, guard and gateway are up to date for it. `answers`: what the program prints, by a shell pattern of
    its arguments. `containers`: further ones, by name.
    """
    (directory / "inventory.yaml").write_text(inventory)
    machine = Machine("here", "127.0.0.1", built=built)
    machine.containers.update(containers)
    if service:
        answers = {**answers, **_up_to_date(machine, directory / "inventory.yaml", service)}
    peer = Peer(directory / "peer", "here", ("here",))
    peer.directory.mkdir()
    program = directory / "bin/docker"
    program.parent.mkdir()
    dial, ask = (" ".join(command.argv[1:]) for command in (DIAL, RELAY))
    cases = "".join(f"{words}) printf '%s\\n' {quote(text)}; exit ;;\n" for words, text in answers.items())
    with closing(Listener("127.0.0.1", 0, machine.api)) as api, serve(peer) as guard:
        words = {"dial": dial, "ask": ask, "api": relay.line(api.port), "guard": relay.line(guard), "answers": cases}
        program.write_text(PROGRAM.format(**words))
        program.chmod(0o755)
        yield Here(directory, peer)


def _up_to_date(machine: Machine, file: Path, service: Service) -> dict[str, str]:
    """Give a machine the guard and gateway that a deploy of `service` needs. Return what they answer."""
    specs = agents.load(inventories.load(file), [service])
    gate = Gate()
    contents = specs.gateway.contents(parse_gateway(gate.run("show")[1]))
    gate.run("configure", stdin=json.dumps(contents.files).encode())
    versions = (
        guard_version(machine.name, specs.guard.context.digest),
        gateway_agent.agent(machine.name, specs.gateway, specs.guard).version,
    )
    for version in versions:
        machine.containers[version.container] = inspect(version.container, dict(version.labels), "running")
    return {'"exec sparkops-gateway gateway show"': gate.run("show")[1], '"exec sparkops-guard "*': ""}
