"""A machine as a node: its commands, Docker's API and its scripted guard."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sparkops.command import Command, Completed
from sparkops.engines import runtime
from sparkops.errors import CommandFailed, ConnectionLost
from sparkops.node.agents.commands import RELAY
from sparkops.node.node import DIAL, OnLine, Stream
from tests.fleet_unit.machine import Machine
from tests.guard_peer import Peer


class Impatient(threading.Event):
    """Waits for no time at all."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return self.is_set()


@dataclass
class MachineNode:
    """A node that is a Machine."""

    machine: Machine
    home: Path
    cancel: threading.Event = field(default_factory=Impatient)

    @property
    def name(self) -> str:
        return self.machine.name

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        _ = stdin, on_line
        if self.machine.dark:
            raise ConnectionLost(self.name, f"`{command}`: no answer")
        completed = self.machine.do(command)
        if completed.exit_code:
            raise CommandFailed(completed)
        return completed

    def sockets(self) -> str:
        """See LocalNode.sockets: each engine of the machine listens."""
        row = "0: 0100007F:{:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 {}"
        return "\n".join(row.format(server.port, runtime.USER) for server in self.machine.up.values())

    def dial(self, port: int | str) -> Stream:
        """See Node.dial."""
        return socket.create_connection((self.machine.address, port), timeout=5.0)

    def pipe(self, command: Command) -> Stream:
        """Docker's API, or the scripted guard of the machine in a thread of its own."""
        if command == DIAL:
            return self.machine.dial_api()
        assert command == RELAY
        ours, theirs = self.machine.pair()
        threading.Thread(target=self._reply, args=(theirs,), daemon=True).start()
        return ours

    def _reply(self, stream: socket.socket) -> None:
        with suppress(BrokenPipeError), stream, stream.makefile("r") as lines, stream.makefile("w") as replies:
            for line in lines:
                replies.write(self.peer.reply(line))
                replies.flush()

    @property
    def peer(self) -> Peer:
        """The scripted guard."""
        directory = self.home / f"{self.name}.peer"
        directory.mkdir(exist_ok=True)
        return Peer(directory, self.name, ("n1", "n2", "n3"))

    def close(self) -> None:
        """Nothing is held."""
