"""A fleet without hardware: machines, each with a scripted guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sparkops.config.fabric import FabricRules as Rules
from sparkops.config.inventory import Build, Fleet, Gateway
from sparkops.config.node import LOOPBACK, NodeConfig
from sparkops.config.release import Release
from sparkops.errors import NotReachable, SparkopsError
from sparkops.guard import replacing
from sparkops.node.docker.commands import set_restart
from sparkops.node.docker_api import Engine
from sparkops.node.member import Member
from sparkops.node.progress import Event
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.fleet.connected import Connected
from tests import examples
from tests.fleet_unit.machine import Facts, Machine
from tests.fleet_unit.nodes import Impatient, MachineNode
from tests.fleet_unit.recipes import recipe
from tests.ports import free_port


@dataclass
class World:
    """Machines by name; n1 has the gateway."""

    machines: Mapping[str, Machine]
    home: Path
    base: int
    events: list[Event] = field(default_factory=list)
    listeners: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens when an event with this text is told, once."""

    def release(self, version: str, **changes: Any) -> Release:
        """A release of the service that is told apart by its version."""
        return Release(recipe(self.base, version, **changes), examples.INPUTS)

    def node(self, name: str) -> MachineNode:
        """The way to a machine."""
        return MachineNode(self.machines[name], self.home)

    @contextmanager
    def order(self, *, without: str = "") -> Iterator[Operation]:
        """What a verb works with; the node `without` cannot be reached."""
        config = {name: NodeConfig(address=machine.address, gpu="none") for name, machine in self.machines.items()}
        fleet = Fleet(
            file=self.home / "inventory.yaml",
            nodes=config,
            build=Build(),
            gateway=Gateway(node="n1", address="127.0.0.1"),
            fabric=Rules(allow_tcp=True),
            known_hosts=self.home / "known_hosts",
        )
        nodes = {name: self.node(name) for name in self.machines}
        members = {name: Member(name, config[name], node, Engine(node)) for name, node in nodes.items()}
        lost: dict[str, SparkopsError] = {name: NotReachable(name, "no answer") for name in members if name == without}
        reached = {name: member for name, member in members.items() if name != without}
        try:
            yield Operation(Connected(fleet, reached, lost, Impatient()), self.receive)
        finally:
            for member in members.values():
                member.engine.close()

    def receive(self, event: Event) -> None:
        self.events.append(event)
        self.listeners.pop(event.text, lambda: None)()

    def listening(self, server: str) -> list[tuple[Machine, str]]:
        """The machine and the container that listen at an address and port."""
        address, _, port = server.partition(":")
        address = self.machines["n1"].address if address == LOOPBACK else address
        containers = [(machine, name) for machine in self.machines.values() for name in machine.up]
        labels = [machine.containers[name]["Config"]["Labels"] for machine, name in containers]
        return [
            (machine, name)
            for (machine, name), own_labels in zip(containers, labels, strict=True)
            if (machine.address, own_labels["sparkops.port"], own_labels["sparkops.rank"]) == (address, port, "0")
        ]

    def answered(self, server: str) -> bool:
        """Whether a request gets an answer there."""
        return any(machine.answer(name, "/v1/models")[0] == 200 for machine, name in self.listening(server))

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()


def whole(machines: Mapping[str, Machine], container: Facts) -> bool:
    """Whether all ranks of a container's attempt run. One that is alone needs nobody."""
    labels = container["Config"]["Labels"]
    if "sparkops.ranks" not in labels:
        return True
    keys = ("sparkops.release", "sparkops.slot", "sparkops.generation")
    running = [
        candidate["Config"]["Labels"].get("sparkops.rank")
        for machine in machines.values()
        for candidate in machine.running()
        if [candidate["Config"]["Labels"].get(key) for key in keys] == [labels.get(key) for key in keys]
    ]
    return len(running) == int(labels["sparkops.ranks"])


def _replace_agent(node: MachineNode, arguments: list[str]) -> int:
    """Run the program that replaces guard or gateway, as its container does. Returns its exit code."""
    image, *version = arguments
    agent = replacing.parse(*version)
    problem = replacing.replace(node, agent, image, patience_s=0.0)
    node.run(set_restart(agent.replacement, "no"))
    node.machine.logs[""] = problem
    return int(bool(problem))


def build(home: Path, number: int = 1) -> World:
    """A world of so many machines."""
    names = [f"n{index}" for index in range(1, number + 1)]
    machines = {name: Machine(name, f"127.0.0.{octet}") for octet, name in enumerate(names, 2)}
    machines["n1"].give_gateway()
    for machine in machines.values():
        machine.whole = partial(whole, machines)
        machine.program = partial(_replace_agent, MachineNode(machine, home))
    world = World(machines, home, free_port())
    machines["n1"].answered = world.answered
    return world
