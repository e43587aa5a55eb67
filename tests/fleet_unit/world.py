"""A fleet without hardware: machines, and their guards with real journals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sparkops.config.fabric import Fabric as Rules
from sparkops.config.inventory import LOOPBACK, Build, Fleet, Gateway, NodeConfig
from sparkops.errors import NotReachable, SparkopsError
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.keep import Keep
from sparkops.fleet.planning import Order
from sparkops.fleet.progress import Event
from sparkops.guard.daemon import PAUSES_S, Guard
from sparkops.guard.store import Store
from sparkops.nodes.engine import Engine
from sparkops.plan.journal import Front, Journal
from sparkops.plan.lock import LEASE_S
from sparkops.plan.takeover import Word, word
from sparkops.release import Release
from tests import examples
from tests.fleet_unit.gate import SERVICE, Gate
from tests.fleet_unit.machine import Facts, Machine
from tests.fleet_unit.nodes import HandClock, Impatient, Life, MachineNode
from tests.fleet_unit.recipes import recipe
from tests.probes.server import free_port


@dataclass
class World:
    """Machines by name; n1 has the gateway."""

    machines: Mapping[str, Machine]
    stores: Mapping[str, Store]
    clocks: Mapping[str, HandClock]
    home: Path
    base: int
    events: list[Event] = field(default_factory=list)
    listeners: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens when an event with this text is told, once."""
    guards: dict[str, Guard] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    """Nodes whose guard cannot be asked by others."""

    @property
    def gate(self) -> Gate:
        gate = self.machines["n1"].gate
        assert gate is not None
        return gate

    def release(self, version: str, **changes: Any) -> Release:
        """A release of the service that is told apart by its version."""
        return Release(recipe(self.base, version, **changes), examples.INPUTS)

    @contextmanager
    def order(self, life: Life | None = None, *, without: str = "") -> Iterator[Order]:
        """What a verb works with; the node `without` cannot be reached."""
        nodes = {name: MachineNode(each, self.stores[name], life or Life()) for name, each in self.machines.items()}
        config = {name: NodeConfig(address=each.address, gpu="none") for name, each in self.machines.items()}
        fleet = Fleet(
            file=self.home / "inventory.yaml",
            nodes=config,
            build=Build(),
            gateway=Gateway(node="n1", address="127.0.0.1"),
            fabric=Rules(allow_tcp=True),
            known_hosts=self.home / "known_hosts",
        )
        members = {name: Member(name, config[name], node, Engine(node)) for name, node in nodes.items()}
        lost: dict[str, SparkopsError] = {name: NotReachable(name, "no answer") for name in members if name == without}
        reached = {name: each for name, each in members.items() if name != without}
        connected = Connected(fleet, reached, lost, Impatient())
        try:
            yield Order(connected, Keep(lambda node: self.home / "failures" / node), self.told)
        finally:
            for member in members.values():
                member.engine.close()

    def told(self, event: Event) -> None:
        self.events.append(event)
        self.listeners.pop(event.text, lambda: None)()

    def journal(self, node: str = "n1") -> Journal:
        return self.stores[node].read(SERVICE)

    def pass_by(self, seconds: float = LEASE_S) -> None:
        for clock in self.clocks.values():
            clock.now_s += seconds

    def tend(self, looks: int = 2) -> None:
        """Let every guard look, all at the same time; what one says, the others hear at their next look.

        While one is at work the others go on looking: it may wait for what they do.
        """
        for _ in range(looks):
            alive = [name for name, machine in self.machines.items() if not machine.dark]
            guards = [threading.Thread(target=self.guard(name).tend) for name in alive]
            at_work = dict(zip(alive, guards, strict=True))
            for each in guards:
                each.start()
            while any(each.is_alive() for each in at_work.values()):
                time.sleep(0.002)
                idle = [name for name, each in at_work.items() if not each.is_alive()]
                if len(idle) < len(at_work):
                    for name in idle:
                        at_work[name] = threading.Thread(target=self.guard(name).tend)
                        at_work[name].start()

    def settle(self) -> None:
        """Let the guards look until they have tried again what depends on the guard of another node."""
        for pause_s in (0.0, *PAUSES_S):
            self.pass_by(pause_s)
            self.tend()

    def guard(self, name: str) -> Guard:
        """The guard of one node."""
        if name not in self.guards:
            node = MachineNode(self.machines[name], self.stores[name])
            self.guards[name] = Guard(self.stores[name], node, self.ask)
        return self.guards[name]

    def ask(self, front: Front, service: str) -> Word | None:
        """What the guard beside the gateway says, unless its node is silent."""
        assert front.address == self.machines[front.node].address
        store = self.stores[front.node]
        return (
            None
            if front.node in self.silent or self.machines[front.node].dark
            else word(store.read(service), store.clock())
        )

    def serving(self) -> str:
        """The release that has the traffic and answers it; why nobody does, otherwise."""
        if self.gate.active is None:
            return "nobody has the traffic"
        release, (server,) = self.gate.active
        there = [machine.release(name) for machine, name in self.listening(server)]
        return release if release in there else f"{release} has the traffic and does not run"

    def listening(self, server: str) -> list[tuple[Machine, str]]:
        """The machine and the container that listen at an address and port."""
        address, _, port = server.partition(":")
        address = self.machines["n1"].address if address == LOOPBACK else address
        found = [(machine, name) for machine in self.machines.values() for name in machine.up]
        labels = [machine.containers[name]["Config"]["Labels"] for machine, name in found]
        return [
            (machine, name)
            for (machine, name), each in zip(found, labels, strict=True)
            if (machine.address, each["sparkops.port"], each["sparkops.rank"]) == (address, port, "0")
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
        each["Config"]["Labels"].get("sparkops.rank")
        for machine in machines.values()
        for each in machine.running()
        if [each["Config"]["Labels"].get(key) for key in keys] == [labels.get(key) for key in keys]
    ]
    return len(running) == int(labels["sparkops.ranks"])


def build(home: Path, number: int = 1) -> World:
    """A world of so many machines. Their clocks differ: no node knows another's."""
    names = [f"n{each}" for each in range(1, number + 1)]
    machines = {name: Machine(name, f"127.0.0.{each}") for each, name in enumerate(names, 2)}
    machines["n1"].give_gateway()
    for machine in machines.values():
        machine.whole = partial(whole, machines)
    clocks = {name: HandClock(ahead_s=1e5 * each) for each, name in enumerate(names)}
    stores = {name: Store(home / name, clocks[name]) for name in names}
    world = World(machines, stores, clocks, home, free_port())
    machines["n1"].answered = world.answered
    return world
