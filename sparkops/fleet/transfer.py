"""Bytes from a node to another one: directly where they reach each other, else through this machine.

`send` is for whatever has to get from node to node: files into a directory, or what one program prints into another
program's input. commands/transfer.py has the two kinds of each end.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sparkops.command import Command, Completed
from sparkops.commands import transfer
from sparkops.commands.transfer import Files, Into, Key, Place, Program
from sparkops.config import programs
from sparkops.errors import CommandFailed, ConnectionLost, Interrupted, NodeError, NotReady, SparkopsError
from sparkops.facts import transfer as facts
from sparkops.fleet.connected import Member
from sparkops.fleet.parallel import on_each
from sparkops.nodes.node import Stream

CHUNK = 256 * 1024
TICK_S = 0.2
NOT_FOUND = 127

OnBytes = Callable[[int], None]
"""Told how many bytes of content have arrived so far in this transfer."""


@dataclass(frozen=True)
class Ends:
    """Who sends what, and who receives it. `addresses` are those of the target, the fastest first.

    Without an address they do not meet: all goes through this machine.
    """

    source: Member
    give: Files | Program
    target: Member
    take: Into | Program
    addresses: Sequence[str] = ()


def send(ends: Ends, on_bytes: OnBytes, on_detour: Callable[[], None]) -> None:
    """Send once, to the end. `on_detour` is told when the nodes do not reach each other.

    Raises NodeError with the words of the end that failed, NotReady for a node without Python, Interrupted. Nothing is
    left running or listening on either node, and what has arrived whole is kept for the next try.
    """
    if ends.addresses and _directly(ends, on_bytes):
        return
    on_detour()
    _through_here(ends, on_bytes)


def held_open(over: threading.Event) -> Iterator[bytes]:
    """A stdin that ends when it is over. A program whose stdin ends, or that loses this machine, ends itself."""
    over.wait()
    yield b""


@dataclass
class _Meeting:
    """A direct transfer under way: the target listens, the source calls."""

    ends: Ends
    on_bytes: OnBytes
    key: Key = field(default_factory=lambda: Key(secrets.token_bytes(32)))
    found: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    places: tuple[Place, ...] = ()

    def heard(self, line: str) -> None:
        """A line of the receiving end."""
        match facts.parse(line):
            case facts.Listening(places):
                self.places = places
                self.found.set()
            case facts.Arrived(count):
                self.on_bytes(count)
            case None:
                pass

    def receive(self) -> None:
        """The receiving end, from its first word to its last."""
        command = transfer.receive(_modules(), self.key, self.ends.take, self.ends.addresses)
        try:
            self.ends.target.node.run(command, stdin=held_open(self.over), on_line=self.heard)
        finally:
            self.found.set()  # there is nothing to wait for any more

    def give(self) -> None:
        """The sending end, once it is known where to call."""
        node = self.ends.source.node
        while not self.found.wait(TICK_S):
            if node.cancel.is_set():
                raise Interrupted(f"{node.name}: interrupted")
        if self.places:
            command = transfer.send(_modules(), self.key, self.ends.give, self.places)
            node.run(command, stdin=held_open(self.over), on_line=_ignore)

    def run(self) -> dict[str, SparkopsError]:
        """Both ends at once. The errors by end; where one fails, the other one is not left to wait for it."""
        work = {"source": self.give, "target": self.receive}

        def take(end: str) -> None:
            try:
                work[end]()
            except SparkopsError:
                self.over.set()
                raise

        try:
            outcomes = on_each(work, take, self.ends.source.node.cancel)
        finally:
            self.over.set()
        return {end: each for end, each in outcomes.items() if isinstance(each, SparkopsError)}


def _modules() -> programs.Modules:
    return programs.load(*programs.TRANSFER)


def _directly(ends: Ends, on_bytes: OnBytes) -> bool:
    """False if the two cannot meet; nothing has been sent then."""
    errors = _Meeting(ends, on_bytes).run()
    if any(_code(error) == transfer.APART for error in errors.values()):
        return False
    if errors:
        raise _explained(ends, errors)
    return True


def _ignore(_: str) -> None:
    """A command with somebody who listens is stopped on its node when we are interrupted."""


def _through_here(ends: Ends, on_bytes: OnBytes) -> None:
    """The source's stdout is the target's stdin. As fast as two SSH connections of this machine."""
    key = Key(secrets.token_bytes(32))
    giving, taking = transfer.send(_modules(), key, ends.give, None), transfer.receive(_modules(), key, ends.take, None)

    def heard(line: str) -> None:
        if isinstance(said := facts.parse(line), facts.Arrived):
            on_bytes(said.count)

    stream = _opened(ends.source, giving)
    try:
        ends.target.node.run(taking, stdin=_pieces(ends.source, stream), on_line=heard)
    except CommandFailed as failed:
        raise _explained(ends, {"target": failed}) from failed
    finally:
        stream.close()


def _opened(source: Member, command: Command) -> Stream:
    try:
        stream = source.node.pipe(command)
        stream.sendall(command.stdin)
    except OSError as error:
        raise ConnectionLost(source.name, f"the stream of a transfer broke: {error}") from error
    return stream


def _pieces(source: Member, stream: Stream) -> Iterator[bytes]:
    try:
        while piece := stream.recv(CHUNK):
            yield piece
    except OSError as error:
        raise ConnectionLost(source.name, f"the stream of a transfer broke: {error}") from error


def _code(error: SparkopsError) -> int:
    return error.completed.exit_code if isinstance(error, CommandFailed) else 0


def _explained(ends: Ends, errors: dict[str, SparkopsError]) -> SparkopsError:
    """The error of the end that failed first: the other one only says that somebody is gone."""
    chosen = sorted(errors, key=lambda end: (_code(errors[end]) == transfer.BROKEN, end))[0]
    error, member = errors[chosen], ends.source if chosen == "source" else ends.target
    return in_words(member, error) if isinstance(error, CommandFailed) else error


def in_words(member: Member, failed: CommandFailed) -> NodeError:
    """What a program of ours said last, without the command that ran it."""
    if failed.completed.exit_code == NOT_FOUND:
        step = "Install it: sudo apt-get install python3"
        return NotReady(member.name, "it has no python3, which sparkops looks at models with", next_step=step)
    said = failed.completed.stderr.strip().splitlines()
    why = said[-1] if said else f"a program ended with code {failed.completed.exit_code} and no word"
    return NodeError(member.name, why, next_step="Run it again: what has arrived is kept.")


def attended(member: Member, command: Command, on_line: Callable[[str], None]) -> None:
    """Run a program that ends itself when its stdin does, in a container: nothing works on where nobody waits for it.

    Raises NodeError with its last words.
    """
    over = threading.Event()
    try:
        member.node.run(command, stdin=held_open(over), on_line=on_line)
    except CommandFailed as failed:
        said = (failed.completed.stderr.strip() or "it said nothing").splitlines()[-1]
        code = failed.completed.exit_code
        raise NodeError(member.name, f"a container of ours ended with code {code}: {said}") from failed
    finally:
        over.set()


def run(member: Member, command: Command, on_line: Callable[[str], None] | None = None) -> Completed:
    """Run a program of ours on a node. Raises NodeError with its own words, NotReady for a node without Python."""
    try:
        return member.node.run(command, on_line=on_line)
    except CommandFailed as failed:
        raise in_words(member, failed) from failed
