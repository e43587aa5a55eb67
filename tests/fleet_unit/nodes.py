"""A machine as a node: its commands, its guard's ear, its clock, and a deploy that can die at any word."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sparkops.command import Command, Completed
from sparkops.commands.guard import SERVE
from sparkops.errors import CommandFailed, ConnectionLost
from sparkops.guard.serve import Ear
from sparkops.guard.store import Store
from sparkops.nodes.engine import DIAL
from sparkops.nodes.node import OnLine, Stream
from sparkops.plan.lock import Clock
from tests.fleet_unit.machine import Machine


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
        if self.machine.dark:
            raise ConnectionLost(self.name, f"`{command}`: no answer")
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
        ours, theirs = self.machine.pair()
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
