"""A fleet without hardware: machines, their guards with real journals, and a deploy that can die at any word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkops.command import Command, Completed
from sparkops.commands.guard import SERVE
from sparkops.config.inventory import Build, Fleet, Gateway, NodeConfig
from sparkops.errors import CommandFailed, NotReachable, SparkopsError
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.keep import Keep
from sparkops.fleet.planning import Order
from sparkops.fleet.progress import Event
from sparkops.guard.daemon import PAUSES_S, Guard
from sparkops.guard.serve import Ear
from sparkops.guard.store import Store
from sparkops.nodes.engine import DIAL, Engine
from sparkops.nodes.node import OnLine, Stream
from sparkops.plan.journal import Front, Journal
from sparkops.plan.lock import LEASE_S, Clock
from sparkops.plan.takeover import Word, word
from sparkops.release import Release
from tests import examples
from tests.fleet_unit.gate import SERVICE, Gate
from tests.fleet_unit.machine import Machine
from tests.fleet_unit.recipes import recipe
from tests.probes.server import free_port


class Impatient(threading.Event):
    """Waits for no time at all."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return self.is_set()


class Dead(BaseException):
    """What a killed process raises: nothing of it is caught, nothing is cleaned up."""


@dataclass
class Life:
    """How many more words with `about` in them a deploy says to guards before it is killed. None: it is not."""

    left: int | None = None
    about: str = ""
    said: int = 0
    dead: bool = False
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def word(self, text: str) -> None:
        with self.mutex:
            matches = self.about in text
            self.dead = self.dead or (matches and self.said == self.left)
            if self.dead:
                raise Dead
            self.said += matches


@dataclass
class HandClock:
    """A node's clock that moves when a test says so."""

    ahead_s: float = 0.0
    boot: str = "boot-1"
    now_s: float = 1000.0

    def __call__(self) -> Clock:
        return Clock(self.now_s + self.ahead_s, self.boot)


@dataclass
class MachineNode:
    """A node that is a Machine."""

    machine: Machine
    store: Store
    life: Life = field(default_factory=Life)
    cancel: threading.Event = field(default_factory=Impatient)

    @property
    def name(self) -> str:
        return self.machine.name

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        _ = stdin, on_line
        done = self.machine.do(command)
        if done.exit_code:
            raise CommandFailed(done)
        return done

    def dial(self, port: int) -> Stream:
        """See Node.dial."""
        return socket.create_connection((self.machine.address, port), timeout=5.0)

    def pipe(self, command: Command) -> Stream:
        """Docker's API, or the guard's ear in a thread of its own."""
        if command == DIAL:
            return self.machine.dial_api()
        assert command == SERVE
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._listen, args=(theirs,), daemon=True).start()
        return Voice(ours, self.life)

    def _listen(self, stream: socket.socket) -> None:
        gone = suppress(BrokenPipeError)  # the deploy may end before it has heard the answer
        with gone, stream, stream.makefile("r") as questions, stream.makefile("w") as answers:
            Ear(self.store, MachineNode(self.machine, self.store)).listen(questions, answers)

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class Voice:
    """A deploy's end of a stream to a guard."""

    stream: socket.socket
    life: Life

    def makefile(self, mode: str) -> Any:
        self.lines = self.stream.makefile(mode)  # type: ignore[call-overload]
        return self.lines

    def close(self) -> None:
        self.lines.close()
        self.stream.close()

    def sendall(self, data: bytes) -> None:
        self.life.word(data.decode())
        self.stream.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


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
        """Let every guard look, all at the same time; what one says, the others hear at their next look."""
        for _ in range(looks):
            guards = [threading.Thread(target=self.guard(name).tend) for name in self.machines]
            for each in guards:
                each.start()
            for each in guards:
                each.join()

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
        return None if front.node in self.silent else word(store.read(service), store.clock())

    def serving(self) -> str:
        """The release that has the traffic and answers it; why nobody does, otherwise."""
        if self.gate.active is None:
            return "nobody has the traffic"
        release, (server,) = self.gate.active
        address, _, port = server.partition(":")
        for machine in self.machines.values():
            for name, container in machine.containers.items():
                labels = container["Config"]["Labels"]
                there = machine.address == address and labels.get("sparkops.port") == port and name in machine.up
                if there and labels["sparkops.release"] == release:
                    return release
        return f"{release} has the traffic and does not run"

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()


def build(home: Path, number: int = 1) -> World:
    """A world of so many machines. Their clocks differ: no node knows another's."""
    names = [f"n{each}" for each in range(1, number + 1)]
    machines = {name: Machine(name, f"127.0.0.{each}") for each, name in enumerate(names, 2)}
    machines["n1"].give_gateway()
    clocks = {name: HandClock(ahead_s=1e5 * each) for each, name in enumerate(names)}
    stores = {name: Store(home / name, clocks[name]) for name in names}
    return World(machines, stores, clocks, home, free_port())
