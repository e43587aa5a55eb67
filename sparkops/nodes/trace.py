"""Log the commands that run on nodes: `sparkops -v` prints them. Without a listener nothing is formatted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from sparkops.command import Command, Completed
from sparkops.nodes.node import Node, OnLine, Stream

COMMANDS = logging.getLogger("sparkops.commands")
"""One DEBUG record per command. Stdin is never part of it, because it may hold secrets; argv holds none."""


@dataclass(frozen=True)
class TracedNode:
    """A node that logs each command before it runs."""

    node: Node

    @property
    def name(self) -> str:
        """See Node.name."""
        return self.node.name

    @property
    def cancel(self) -> threading.Event:
        """See Node.cancel."""
        return self.node.cancel

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        trace(self.name, command)
        return self.node.run(command, stdin=stdin, on_line=on_line)

    def dial(self, port: int | str) -> Stream:
        """See Node.dial."""
        trace(self.name, f"connect to {port}" if isinstance(port, str) else f"connect to 127.0.0.1:{port}")
        return self.node.dial(port)

    def pipe(self, command: Command) -> Stream:
        """See Node.pipe."""
        trace(self.name, command)
        return self.node.pipe(command)

    def close(self) -> None:
        """See Node.close."""
        self.node.close()


def trace(node: str, action: object) -> None:
    """Log one action on a node."""
    COMMANDS.debug("%s: %s", node, action)


def traced(node: Node) -> Node:
    """Return `node` itself, or wrapped if its commands are logged."""
    return TracedNode(node) if COMMANDS.isEnabledFor(logging.DEBUG) else node
