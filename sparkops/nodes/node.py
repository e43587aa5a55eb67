"""What a node can do. Everything that reaches a node goes through these four methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from sparkops.command import Command, Completed

Stream = Any
"""A connected duplex stream with the methods of a socket: a socket, or an SSH channel."""

OnLine = Callable[[str], None]


class Node(Protocol):
    """A machine that runs Docker."""

    @property
    def name(self) -> str:
        """Name in the inventory."""

    @property
    def cancel(self) -> threading.Event:
        """Set by Ctrl-C: a running command is then stopped on the node as well."""

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """Run a command to its end.

        `stdin` is streamed after `command.stdin`. `on_line` gets every line of both outputs as it comes.
        Raises CommandFailed, ConnectionLost or Interrupted.
        """

    def dial(self, port: int | str) -> Stream:
        """Connect to a TCP port of the node itself, or to a Unix socket there by its path. Raises OSError."""

    def pipe(self, command: Command) -> Stream:
        """A stream to stdin and stdout of a command. Raises OSError."""

    def close(self) -> None:
        """Give up the connection."""
