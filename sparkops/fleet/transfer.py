"""Bytes from a node to others: directly where they reach each other, else through this machine.

`send` is for whatever has to get from node to node: files into a directory, or what one program prints into another
program's input. commands/transfer.py has the two kinds of each end.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparkops.command import Command, Completed
from sparkops.commands import transfer
from sparkops.commands.transfer import Key
from sparkops.errors import CommandFailed, ConnectionLost, NodeError, NotReady, SparkopsError
from sparkops.facts import transfer as facts
from sparkops.fleet.connected import Member
from sparkops.fleet.meeting import SOURCE, Door, Ends, Meeting, Told, exit_code, held_open, modules
from sparkops.fleet.parallel import all_or_raise, on_each
from sparkops.nodes.node import Stream

CHUNK = 256 * 1024
NOT_FOUND = 127


def send(ends: Ends, on_bytes: Callable[[int], None], on_detour: Callable[[], None]) -> None:
    """Send once, to the end. `on_detour` is told when the nodes do not reach each other.

    Raises NodeError with the words of the end that failed, NotReady for a node without Python, Interrupted. Nothing is
    left running or listening on either node, and what has arrived whole is kept for the next try.
    """
    all_or_raise(send_to_all([(ends, Told(on_bytes, on_detour))]))


def send_to_all(sent: Sequence[tuple[Ends, Told]]) -> dict[str, SparkopsError | None]:
    """Send the same from one node to several at once. It is read once for all that the source reaches directly.

    Returns the error of each target by its name, or None where all has arrived. Raises Interrupted.
    """
    doors = [Door(ends, told) for ends, told in sent if ends.addresses]
    errors = Meeting(doors).run() if doors else {}
    met = {door.name: _explained(door.ends, errors[door.name]) for door in doors if not door.apart}
    apart = {ends.target.name: (ends, told) for ends, told in sent if ends.target.name not in met}
    return {**met, **on_each(apart, lambda name: _through_here(*apart[name]), sent[0][0].source.node.cancel)}


def _through_here(ends: Ends, told: Told) -> None:
    """The source's stdout is the target's stdin. As fast as two SSH connections of this machine."""
    told.on_detour()
    key = Key(secrets.token_bytes(32))
    giving, taking = transfer.send(modules(), key, ends.give, None), transfer.receive(modules(), key, ends.take, None)

    def heard(line: str) -> None:
        if isinstance(said := facts.parse(line), facts.Arrived):
            told.heard(said)

    stream = _opened(ends.source, giving)
    try:
        ends.target.node.run(taking, stdin=_pieces(ends.source, stream), on_line=heard)
    except CommandFailed as failed:
        raise in_words(ends.target, failed) from failed
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


def _explained(ends: Ends, errors: Mapping[str, SparkopsError]) -> SparkopsError | None:
    """The error of the end that failed first: the other one only says that somebody is gone."""
    if not errors:
        return None
    chosen = sorted(errors, key=lambda end: (exit_code(errors[end]) == transfer.BROKEN, end))[0]
    error, member = errors[chosen], ends.source if chosen == SOURCE else ends.target
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
