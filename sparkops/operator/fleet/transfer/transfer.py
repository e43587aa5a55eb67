"""Bytes from a node to others: directly where they reach each other, else through this machine."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparkops.command import Command, Completed
from sparkops.errors import CommandFailed, ConnectionLost, NodeError, NotReady, SparkopsError
from sparkops.node.member import Member
from sparkops.node.node import Stream
from sparkops.operator.fleet.parallel import all_or_raise, on_each
from sparkops.operator.fleet.transfer import commands
from sparkops.operator.fleet.transfer.commands import Arrived, Key
from sparkops.operator.fleet.transfer.rendezvous import (
    SOURCE,
    Ends,
    ReceivingEnd,
    Rendezvous,
    TransferObserver,
    exit_code,
    held_open,
)

CHUNK = 256 * 1024
NOT_FOUND = 127


def send(ends: Ends, on_bytes: Callable[[int], None], on_detour: Callable[[], None]) -> None:
    """Send once, to the end. `on_detour` is called when the nodes do not reach each other.

    Raises NodeError with the message of the end that failed, NotReady for a node without Python, Interrupted. Nothing
    keeps running or listening on either node, and complete pieces are kept for the next try.
    """
    all_or_raise(send_to_all([(ends, TransferObserver(on_bytes, on_detour))]))


def send_to_all(sent: Sequence[tuple[Ends, TransferObserver]]) -> dict[str, SparkopsError | None]:
    """Send the same from one node to several at once. It is read once for all that the source reaches directly.

    Returns the error of each target by its name, or None where all has arrived. Raises Interrupted.
    """
    receivers = [ReceivingEnd(ends, observer) for ends, observer in sent if ends.addresses]
    errors = Rendezvous(receivers).run() if receivers else {}
    direct = {end.name: _explained(end.ends, errors[end.name]) for end in receivers if not end.unreachable}
    relayed = {ends.target.name: (ends, observer) for ends, observer in sent if ends.target.name not in direct}
    return {**direct, **on_each(relayed, lambda name: _relay(*relayed[name]), sent[0][0].source.node.cancel)}


def _relay(ends: Ends, observer: TransferObserver) -> None:
    """Connect the source's stdout to the target's stdin. As fast as two SSH connections of this machine."""
    observer.on_detour()
    key = Key(secrets.token_bytes(32))
    giving, taking = commands.send(key, ends.give, None), commands.receive(key, ends.take, None)

    def on_line(line: str) -> None:
        if isinstance(message := commands.parse(line), Arrived):
            observer.report(message)

    try:
        stream = ends.source.node.pipe(giving)
        stream.sendall(giving.stdin)
    except OSError as error:
        raise ConnectionLost(ends.source.name, f"the stream of a transfer broke: {error}") from error
    try:
        ends.target.node.run(taking, stdin=_pieces(ends.source, stream), on_line=on_line)
    except CommandFailed as failed:
        raise in_words(ends.target, failed) from failed
    finally:
        stream.close()


def _pieces(source: Member, stream: Stream) -> Iterator[bytes]:
    try:
        while piece := stream.recv(CHUNK):
            yield piece
    except OSError as error:
        raise ConnectionLost(source.name, f"the stream of a transfer broke: {error}") from error


def _explained(ends: Ends, errors: Mapping[str, SparkopsError]) -> SparkopsError | None:
    """Return the error of the end that failed first: the other end only reports a closed connection."""
    if not errors:
        return None
    chosen = sorted(errors, key=lambda end: (exit_code(errors[end]) == commands.BROKEN, end))[0]
    error, member = errors[chosen], ends.source if chosen == SOURCE else ends.target
    return in_words(member, error) if isinstance(error, CommandFailed) else error


def in_words(member: Member, failed: CommandFailed) -> NodeError:
    """Return the last line that a program of sparkops printed as an error, without its command."""
    if failed.completed.exit_code == NOT_FOUND:
        step = "Install it: sudo apt-get install python3"
        return NotReady(member.name, "python3 not found; sparkops reads models with it", next_step=step)
    lines = failed.completed.stderr.strip().splitlines()
    why = lines[-1] if lines else f"a program ended with code {failed.completed.exit_code} and no message"
    return NodeError(member.name, why, next_step="Run the command again: it continues.")


def attended(member: Member, command: Command, on_line: Callable[[str], None]) -> None:
    """Run a program in a container; it ends with its stdin, so that it never outlives its client.

    Raises NodeError with its last line.
    """
    over = threading.Event()
    try:
        member.node.run(command, stdin=held_open(over), on_line=on_line)
    except CommandFailed as failed:
        last_line = (failed.completed.stderr.strip() or "no output").splitlines()[-1]
        code = failed.completed.exit_code
        raise NodeError(member.name, f"a container of sparkops exited with code {code}: {last_line}") from failed
    finally:
        over.set()


def run(member: Member, command: Command, on_line: Callable[[str], None] | None = None) -> Completed:
    """Run a program of sparkops on a node. Raises NodeError with its last line, NotReady for a node without Python."""
    try:
        return member.node.run(command, on_line=on_line)
    except CommandFailed as failed:
        raise in_words(member, failed) from failed
