"""The firewall of a node, kept by its guard.

The rules follow the labels of this node's containers, so they return after a reboot and go with the containers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from sparkops.docker import facts
from sparkops.errors import SparkopsError
from sparkops.guard.state import State
from sparkops.network import firewall
from sparkops.nodes.docker_api import Engine
from sparkops.nodes.node import Node

RENEWING = threading.Lock()
"""Held from the list of containers to the rules: else an older list could replace the rules of a newer one."""


def close_ports(node: Node) -> None:
    """Let nftables have the rules that the containers of this node require. Raises SparkopsError, ValueError."""
    with closing(Engine(node)) as engine:
        _renew(node, engine)


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
