"""Direct transfers: targets listen, and the source connects to them. Only for operator/fleet/transfer/transfer.py."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sparkops.errors import CommandFailed, Interrupted, SparkopsError
from sparkops.node.member import Member
from sparkops.operator.fleet.parallel import on_each
from sparkops.operator.fleet.transfer import commands
from sparkops.operator.fleet.transfer.commands import (
    Arrived,
    EndProgram,
    Into,
    Key,
    Listening,
    Place,
    SentFiles,
    Unreachable,
)

TICK_S = 0.2
SOURCE = ""
"""The source among the ends of a rendezvous; no node has that name."""


@dataclass(frozen=True)
class Ends:
    """The source, the target, and the program of each. `addresses` are those of the target, the fastest first.

    Without an address the content goes through this machine.
    """

    source: Member
    give: SentFiles | EndProgram
    target: Member
    take: Into | EndProgram
    addresses: Sequence[str] = ()


@dataclass(frozen=True)
class TransferObserver:
    """Callbacks of a transfer: bytes of content have arrived, the nodes do not reach each other, all has arrived.

    A program at the receiving end may run long after the last one.
    """

    on_bytes: Callable[[int], None]
    on_detour: Callable[[], None]
    on_all: Callable[[], None] = lambda: None

    def report(self, arrived: Arrived) -> None:
        """Report the progress of the receiving end."""
        self.on_bytes(arrived.count)
        if arrived.all:
            self.on_all()


def held_open(over: threading.Event) -> Iterator[bytes]:
    """Yield a stdin that ends with `over`. A program ends with its stdin, also if the connection is lost."""
    over.wait()
    yield b""


def exit_code(error: SparkopsError) -> int:
    """Return the exit code of a failed command; 0 if it did not end by itself."""
    return error.completed.exit_code if isinstance(error, CommandFailed) else 0


@dataclass
class ReceivingEnd:
    """The receiving end of a direct transfer. `unreachable`: the source cannot connect to it, and nothing was sent."""

    ends: Ends
    observer: TransferObserver
    key: Key = field(default_factory=lambda: Key(secrets.token_bytes(32)))
    ready: threading.Event = field(default_factory=threading.Event)
    """Set when its places are known, or will not be."""
    over: threading.Event = field(default_factory=threading.Event)
    places: tuple[Place, ...] = ()
    unreachable: bool = False

    @property
    def name(self) -> str:
        return self.ends.target.name

    def run(self) -> None:
        """Run the receiving end until it ends."""
        command = commands.receive(self.key, self.ends.take, self.ends.addresses)
        try:
            self.ends.target.node.run(command, stdin=held_open(self.over), on_line=self._read)
        finally:
            self.ready.set()

    def _read(self, line: str) -> None:
        match commands.parse(line):
            case Listening(places):
                self.places = places
                self.ready.set()
            case Arrived() as arrived:
                self.observer.report(arrived)
            case _:
                pass


@dataclass
class Rendezvous:
    """A direct transfer of the same content from one source to all receivers at once."""

    receivers: Sequence[ReceivingEnd]
    over: threading.Event = field(default_factory=threading.Event)
    called: list[ReceivingEnd] = field(default_factory=list)

    @property
    def source(self) -> Member:
        return self.receivers[0].ends.source

    def run(self) -> dict[str, dict[str, SparkopsError]]:
        """Run all ends at once. Return the errors of each target, if any, by end: SOURCE, and its own name.

        Where an end fails, no other one keeps waiting for it. Raises Interrupted.
        """
        receivers = {receiver.name: receiver for receiver in self.receivers}
        failed: set[str] = set()

        def run_end(end: str) -> None:
            try:
                receivers[end].run() if end in receivers else self._send()
            except SparkopsError:
                failed.add(end)
                if end == SOURCE or failed >= set(receivers):
                    self._end()
                raise

        try:
            outcomes = on_each([SOURCE, *receivers], run_end, self.source.node.cancel)
        finally:
            self._end()
        errors = {end: error for end, error in outcomes.items() if isinstance(error, SparkopsError)}
        for receiver in self.receivers:
            codes = {exit_code(errors[end]) for end in (SOURCE, receiver.name) if end in errors}
            receiver.unreachable = receiver.unreachable or commands.UNREACHABLE in codes
        return {name: {end: errors[end] for end in (SOURCE, name) if end in errors} for name in receivers}

    def _send(self) -> None:
        """Run the sending end once the places of all receivers are known."""
        for receiver in self.receivers:
            while not receiver.ready.wait(TICK_S):
                if self.source.node.cancel.is_set():
                    raise Interrupted(f"{self.source.name}: interrupted")
        self.called = [receiver for receiver in self.receivers if receiver.places]
        if not self.called:
            return
        first, *also = ((receiver.key, receiver.places) for receiver in self.called)
        command = commands.send(first[0], self.receivers[0].ends.give, first[1], also)
        self.source.node.run(command, stdin=held_open(self.over), on_line=self._read)

    def _read(self, line: str) -> None:
        """Read a line of the sending end. End the receivers that it cannot connect to."""
        if isinstance(message := commands.parse(line), Unreachable):
            for number in message.numbers:
                self.called[number].unreachable = True
                self.called[number].over.set()

    def _end(self) -> None:
        for over in (self.over, *(receiver.over for receiver in self.receivers)):
            over.set()
