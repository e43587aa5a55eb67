"""Machines behind SSH: each node is an SSH server of this process with a guard, and n1 has the gateway."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import paramiko
import yaml

from sparkops.command import Command
from sparkops.config import inventory
from sparkops.errors import CommandFailed
from sparkops.gateway.facts import parse_gateway
from sparkops.node import host
from sparkops.node.agents.commands import RELAY
from sparkops.node.agents.replaceable import guard_version
from sparkops.node.docker.places import REPORT
from sparkops.node.node import DIAL
from sparkops.node.survey.commands import FORMAT, request
from sparkops.node.survey.node_survey import unused
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.deploy.agents import agents, gateway_agent
from sparkops.operator.fleet.ssh import ANNOUNCED
from tests.fleet_unit.gate import Gate
from tests.fleet_unit.machine import Machine, inspect
from tests.fleet_unit.nodes import MachineNode
from tests.guard_peer import Peer
from tests.operator.fleet.ssh_server import SshServer, join, listening

DOCKER_SOCKET = "/var/run/docker.sock"


@dataclass
class CountingMachine(Machine):
    """A machine that counts the requests to its Docker."""

    requests: Counter[str] = field(default_factory=Counter)

    def api(self, path: str) -> tuple[int, bytes]:
        """See Machine.api."""
        self.requests[path.split("?", maxsplit=1)[0]] += 1
        return super().api(path)


@dataclass
class GuardedNode(MachineNode):
    """A machine whose guard knows the fleet's nodes. Requests that arrive at once are one of its `trips`."""

    fleet: tuple[str, ...] = ()
    trips: int = 0

    @property
    def peer(self) -> Peer:
        """The scripted guard."""
        directory = self.home / f"{self.name}.peer"
        directory.mkdir(exist_ok=True)
        return Peer(directory, self.name, self.fleet)

    def _reply(self, stream: socket.socket) -> None:
        rest = b""
        with suppress(ConnectionError), stream:
            while piece := stream.recv(65536):
                *lines, rest = (rest + piece).split(b"\n")
                self.trips += bool(lines)
                stream.sendall("".join(self.peer.reply(line.decode()) for line in lines).encode())


@dataclass(frozen=True)
class Endpoint:
    """A node, and its SSH server."""

    node: GuardedNode
    machine: CountingMachine
    server: SshServer

    def counts(self) -> dict[str, int]:
        """What clients have needed so far: connections, channels in them, and round trips in those."""
        return {
            "connections": len(self.server.transports),
            "channels": len(self.server.channels),
            "requests to Docker": self.machine.requests.total(),
            "round trips to the guard": self.node.trips,
        }

    def forget(self) -> None:
        """Count from 0, and let the guard be without services."""
        self.node.trips = 0
        for known in (self.server.transports, self.server.channels, self.machine.requests):
            known.clear()
        for file in self.node.peer.directory.iterdir():
            file.unlink()


def execute(node: GuardedNode, _: SshServer, channel: paramiko.Channel, line: str) -> None:
    """Run a command line on a machine: Docker's API and the guard as streams, all else to its end."""
    argv = tuple(shlex.split(line))
    argv = argv[len(ANNOUNCED) :] if argv[: len(ANNOUNCED)] == ANNOUNCED else argv
    for command in (DIAL, RELAY):
        if argv == command.argv:
            join(channel, node.pipe(command))
            return
    with suppress(OSError, EOFError):
        stdin = b"".join(iter(lambda: channel.recv(65536), b""))
        try:
            ended = node.run(Command(argv, stdin=stdin))
        except CommandFailed as failed:
            ended = failed.completed
        channel.sendall(ended.stdout.encode())
        channel.sendall_stderr(ended.stderr.encode())
        channel.send_exit_status(ended.exit_code)
        channel.shutdown_write()
        channel.close()


def report(machine: Machine) -> socket.socket:
    """A connection to the report of a machine's guard, which leads nothing."""
    facts = machine.do(host.status()).stdout
    ours, theirs = machine.pair()
    survey = {"host": {"code": 0, "out": facts, "err": ""}, **unused(request())}
    text = json.dumps({"format": FORMAT, **survey}) + "\n"

    def send() -> None:
        with theirs, suppress(OSError):
            theirs.sendall(text.encode())

    threading.Thread(target=send, daemon=True).start()
    return ours


@contextmanager
def serve(home: Path, count: int, service: Service) -> Iterator[dict[str, Endpoint]]:
    """Serve `count` machines with guards and a gateway of this version; `home` gets inventory.yaml and its keys.

    All have one address of this machine, and a port each.
    """
    names = tuple(f"n{number}" for number in range(1, count + 1))
    host_key, client_key = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    home.mkdir(parents=True, exist_ok=True)
    client_key.write_private_key_file(str(home / "id"))
    pinned = f"{host_key.get_name()} {host_key.get_base64()}"
    (home / "known_hosts").write_text("".join(f"{name} {pinned}\n" for name in names))
    endpoints: dict[str, Endpoint] = {}
    with ExitStack() as stack:
        for name in names:
            machine = CountingMachine(name, "127.0.0.1")
            node = GuardedNode(machine, home, fleet=names)
            sockets = {REPORT: partial(report, machine), DOCKER_SOCKET: machine.dial_api}
            run = partial(execute, node)
            server = stack.enter_context(listening(host_key, client_key, execute=run, sockets=sockets))
            stack.callback(machine.close)
            endpoints[name] = Endpoint(node, machine, server)
        write_inventory(home / "inventory.yaml", {name: item.server.port for name, item in endpoints.items()})
        _install(endpoints, home / "inventory.yaml", service)
        yield endpoints


def write_inventory(file: Path, ports: dict[str, int]) -> None:
    """Name nodes on ports of this machine."""
    nodes = {name: {"address": "127.0.0.1", "port": port} for name, port in ports.items()}
    defaults = {"user": "ops", "ssh_key": "id", "gpu": "none"}
    gateway = {"node": next(iter(nodes)), "address": "127.0.0.1"}
    file.write_text(yaml.safe_dump({"defaults": defaults, "nodes": nodes, "gateway": gateway}, sort_keys=False))


def _install(endpoints: dict[str, Endpoint], file: Path, service: Service) -> None:
    """Give each machine a guard of this version, and the first one the gateway with the service."""
    specs = agents.load(inventory.load(file), [service])
    first = next(iter(endpoints))
    gate = endpoints[first].machine.gate = Gate()
    contents = specs.gateway.contents(parse_gateway(gate.run("show")[1]))
    gate.run("configure", stdin=json.dumps(contents.files).encode())
    for name, endpoint in endpoints.items():
        gateway = gateway_agent.agent(name, specs.gateway, specs.guard).version
        for version in (guard_version(name, specs.guard.context.digest), *([gateway] if name == first else [])):
            endpoint.machine.containers[version.container] = inspect(version.container, dict(version.labels), "running")
