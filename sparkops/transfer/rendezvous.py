"""Nodes that meet: targets listen, and the source calls them. Only for transfer/transfer.py."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sparkops.config import programs
from sparkops.errors import CommandFailed, Interrupted, SparkopsError
from sparkops.nodes.connected import Member
from sparkops.nodes.parallel import on_each
from sparkops.transfer import commands, facts
from sparkops.transfer.commands import EndProgram, Into, Key, Place, SentFiles
from sparkops.transfer.facts import Arrived

TICK_S = 0.2
SOURCE = ""
"""The source among the ends of a meeting; no node has that name."""


@dataclass(frozen=True)
class Ends:
    """Who sends what, and who receives it. `addresses` are those of the target, the fastest first.

    Without an address they do not meet: all goes through this machine.
    """

    source: Member
    give: SentFiles | EndProgram
    target: Member
    take: Into | EndProgram
    addresses: Sequence[str] = ()


@dataclass(frozen=True)
class TransferObserver:
    """Who is told of a transfer: how many bytes of content have arrived; that the nodes do not reach each other.

    And that all has arrived: a program at the receiving end may still have long to do with it.
    """

    on_bytes: Callable[[int], None]
    on_detour: Callable[[], None]
    on_all: Callable[[], None] = lambda: None

    def heard(self, arrived: Arrived) -> None:
        """What the receiving end says."""
        self.on_bytes(arrived.count)
        if arrived.all:
            self.on_all()


def modules() -> programs.Modules:
    """The program of both ends."""
    return programs.load(*programs.TRANSFER)


def held_open(over: threading.Event) -> Iterator[bytes]:
    """A stdin that ends when it is over. A program whose stdin ends, or that loses this machine, ends itself."""
    over.wait()
    yield b""


def exit_code(error: SparkopsError) -> int:
    """With which code a command failed; 0 where it did not end by itself."""
    return error.completed.exit_code if isinstance(error, CommandFailed) else 0


@dataclass
class Door:
    """The receiving end of a direct transfer. `apart`: the source cannot reach it, and nothing was sent."""

    ends: Ends
    told: TransferObserver
    key: Key = field(default_factory=lambda: Key(secrets.token_bytes(32)))
    found: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    places: tuple[Place, ...] = ()
    apart: bool = False

    @property
    def name(self) -> str:
        """The target's."""
        return self.ends.target.name

    def receive(self) -> None:
        """The receiving end, from its first word to its last."""
        command = commands.receive(modules(), self.key, self.ends.take, self.ends.addresses)
        try:
            self.ends.target.node.run(command, stdin=held_open(self.over), on_line=self._heard)
        finally:
            self.found.set()  # there is nothing to wait for any more

    def _heard(self, line: str) -> None:
        match facts.parse(line):
            case facts.Listening(places):
                self.places = places
                self.found.set()
            case facts.Arrived() as arrived:
                self.told.heard(arrived)
            case _:
                pass


@dataclass
class Rendezvous:
    """A direct transfer of the same from one source to all doors at once."""

    doors: Sequence[Door]
    over: threading.Event = field(default_factory=threading.Event)
    called: list[Door] = field(default_factory=list)

    @property
    def source(self) -> Member:
        """Who calls."""
        return self.doors[0].ends.source

    def run(self) -> dict[str, dict[str, SparkopsError]]:
        """All ends at once. For each target the errors by end, if there are any: SOURCE, and its own name.

        Where an end fails, no other one is left to wait for it. Raises Interrupted.
        """
        doors = {door.name: door for door in self.doors}
        failed: set[str] = set()

        def take(end: str) -> None:
            try:
                doors[end].receive() if end in doors else self._give()
            except SparkopsError:
                failed.add(end)
                if end == SOURCE or failed >= set(doors):
                    self._end()
                raise

        try:
            outcomes = on_each([SOURCE, *doors], take, self.source.node.cancel)
        finally:
            self._end()
        errors = {end: error for end, error in outcomes.items() if isinstance(error, SparkopsError)}
        for door in self.doors:
            codes = {exit_code(errors[end]) for end in (SOURCE, door.name) if end in errors}
            door.apart = door.apart or commands.APART in codes
        return {name: {end: errors[end] for end in (SOURCE, name) if end in errors} for name in doors}

    def _give(self) -> None:
        """The sending end, once it is known where to call."""
        for door in self.doors:
            while not door.found.wait(TICK_S):
                if self.source.node.cancel.is_set():
                    raise Interrupted(f"{self.source.name}: interrupted")
        self.called = [door for door in self.doors if door.places]
        if not self.called:
            return
        first, *also = ((door.key, door.places) for door in self.called)
        command = commands.send(modules(), first[0], self.doors[0].ends.give, first[1], also)
        self.source.node.run(command, stdin=held_open(self.over), on_line=self._heard)

    def _heard(self, line: str) -> None:
        """A line of the sending end. A target that it cannot meet is not left to wait."""
        if isinstance(message := facts.parse(line), facts.Apart):
            for number in message.numbers:
                self.called[number].apart = True
                self.called[number].over.set()

    def _end(self) -> None:
        for over in (self.over, *(door.over for door in self.doors)):
            over.set()
