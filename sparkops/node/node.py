"""A node: its four methods, through which everything reaches it, its address, and the log of its commands."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from sparkops.command import Command, Completed

Stream = Any
"""A connected duplex stream with the methods of a socket: a socket, or an SSH channel."""

OnLine = Callable[[str], None]

COMMANDS = logging.getLogger("sparkops.commands")
"""One DEBUG record per command, printed by `sparkops -v`. It omits stdin, which may hold secrets; argv holds none."""


DIAL = Command(("docker", "system", "dial-stdio"), timeout_s=60.0)
"""Connects stdin and stdout to Docker, wherever the user's context or DOCKER_HOST says that it is."""


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

        `stdin` is streamed after `command.stdin`. `on_line` receives every line of both outputs at once.
        Raises CommandFailed, ConnectionLost or Interrupted.
        """

    def dial(self, port: int | str) -> Stream:
        """Connect to a TCP port of the node itself, or to a Unix socket there by its path. Raises OSError."""

    def pipe(self, command: Command) -> Stream:
        """Return a stream to stdin and stdout of a command. Raises OSError."""

    def close(self) -> None:
        """Close the connection."""


def trace(node: str, action: object) -> None:
    """Log one action on a node. It is formatted only for a listener."""
    COMMANDS.debug("%s: %s", node, action)


class Route(Protocol):
    """The SSH address of one node; None takes the default of config.inventory."""

    @property
    def address(self) -> str:
        """Host name or IP address."""

    @property
    def transport(self) -> str:
        """`ssh`, or `local` for this machine."""

    @property
    def user(self) -> str | None:
        """SSH user."""

    @property
    def port(self) -> int | None:
        """SSH port."""

    @property
    def ssh_key(self) -> str | None:
        """Private key file."""

    @property
    def jump(self) -> str | None:
        """The node through which this one is reached."""


class GatewayPlace(Protocol):
    """The gateway of an inventory, or of its addresses alone (config.addresses)."""

    @property
    def node(self) -> str:
        """Name of its node."""

    @property
    def address(self) -> str | None:
        """Host name or IP address that clients use."""

    @property
    def port(self) -> int | None:
        """Port of one address for all services."""

    def url(self, port: int) -> str:
        """Return the base URL for OpenAI clients: of all services if there is one, else of the service on `port`."""


class Routes(Protocol):
    """The routes to all nodes: an inventory, or its addresses alone (config.addresses)."""

    @property
    def file(self) -> Path:
        """The inventory."""

    @property
    def known_hosts(self) -> Path:
        """File of pinned host keys."""

    def node(self, name: str) -> Route:
        """Return the route to a node. Raises UsageError for an unknown name."""

    def resolve(self, path: str) -> Path:
        """Return a path of the inventory, seen from the inventory's directory."""
