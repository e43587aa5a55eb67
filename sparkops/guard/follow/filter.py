"""The firewall of a node, kept by its guard.

The rules follow the labels of this node's containers, so they return after a reboot and go with the containers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from sparkops.errors import CommandFailed, SparkopsError
from sparkops.guard.disk.state import State
from sparkops.node.docker import facts
from sparkops.node.docker.facts import Container
from sparkops.node.docker_api import Engine
from sparkops.node.network import firewall
from sparkops.node.node import Node

RENEWING = threading.Lock()
"""Held from the list of containers to the rules: else an older list could replace the rules of a newer one."""


def close_ports(node: Node, starting: Container | None = None) -> None:
    """Let nftables have the rules that the containers of this node require. Raises SparkopsError, ValueError.

    Where it refuses new rules, such as of a kernel whose modules an update has replaced, the present ones suffice if
    they close the ports of the container that is `starting`: it may be the one that serves.
    """
    with closing(Engine(node)) as engine:
        try:
            _renew(node, engine)
        except CommandFailed:
            if starting is None or not _are_closed(node, starting):
                raise


def _are_closed(node: Node, starting: Container) -> bool:
    """Return whether the present rules close the ports of a container. Raises SparkopsError."""
    ports = {starting.rendezvous_port, 0 if starting.rank else starting.port} - {0}
    return bool(ports) and ports <= firewall.closed_ports(node.run(firewall.PRESENT).stdout)


def _renew(node: Node, engine: Engine) -> None:
    with RENEWING:
        containers = [facts.parse_listed(node.name, listed) for listed in engine.listed()]
        ephemeral = node.run(firewall.EPHEMERAL).stdout
        membership = State().membership()
        gateway = membership.gateway if membership else ()
        node.run(firewall.apply(firewall.of_containers(containers, gateway), ephemeral))


@dataclass
class Filter:
    """The rules of one node, renewed at every look: another program may have flushed them."""

    node: Node
    log: Callable[[str], None]
    trouble: str = ""
    """What failed last; it is logged once."""
    _reader: Engine | None = None
    """Kept open between looks: opening it takes longer than the look."""

    def look(self) -> None:
        """Renew the rules."""
        try:
            self._reader = self._reader or Engine(self.node)
            _renew(self.node, self._reader)
            trouble = ""
        except (SparkopsError, OSError, ValueError) as error:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            trouble = f"ports of engines and ranks stay open: {error}"
        if trouble and trouble != self.trouble:
            self.log(trouble)
        self.trouble = trouble
