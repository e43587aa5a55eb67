"""Requests to one process on a node and its replies, a line each, over one stream."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from sparkops.command import Command
from sparkops.nodes.node import Node, Stream


@dataclass
class LineStream:
    """A stream to a command, opened by the first request and again after it was closed."""

    node: Node
    command: Command
    stream: Stream = None
    lines: IO[str] | None = None

    def open(self) -> bool:
        """Start the command unless it runs. Returns whether it ran before. Raises OSError."""
        if self.lines is not None:
            return True
        self.stream = self.node.pipe(self.command)
        self.lines = self.stream.makefile("r")
        return False

    def ask(self, line: str, timeout_s: float, limit: int = -1) -> str:
        """Send a line and return the next one, empty where the stream has ended. Raises OSError."""
        self.open()
        self.stream.settimeout(timeout_s)
        with suppress(OSError):  # where it has ended, its last words may still be read
            self.stream.sendall(f"{line}\n".encode())
        return self.lines.readline(limit) if self.lines else ""

    def close(self) -> None:
        """End the stream, if one is open. Its reader ends with it: paramiko's fails if it is closed by hand."""
        if self.lines is not None:
            self.lines = None
            with suppress(OSError):  # it may be gone already
                self.stream.close()
