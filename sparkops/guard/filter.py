"""The guard keeps the firewall of its node. `python -m sparkops.guard.filter` sets it at once.

The rules follow the labels of this node's containers, so they return after a reboot and go with the containers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from sparkops.commands import firewall
from sparkops.errors import SparkopsError
from sparkops.facts import docker as docker_facts
from sparkops.guard import here
from sparkops.nodes.engine import Engine
from sparkops.nodes.node import Node
from sparkops.plan import exposure


def enforce(node: Node) -> None:
    """Let nftables have the rules that the containers of this node require. Raises SparkopsError, ValueError."""
    engine = Engine(node)
    try:
        containers = [docker_facts.parse(node.name, inspect) for inspect in engine.containers()]
    finally:
        engine.close()
    ephemeral = node.run(firewall.EPHEMERAL).stdout
    node.run(firewall.apply(exposure.firewall(containers), ephemeral))


@dataclass
class Filter:
    """The rules of one node, renewed at every look: another program may have flushed them."""

    node: Node
    log: Callable[[str], None]
    trouble: str = ""
    """What failed last; it is logged once."""

    def look(self) -> None:
        """Renew the rules."""
        try:
            enforce(self.node)
            trouble = ""
        except (SparkopsError, OSError, ValueError) as error:
            trouble = f"ports of engines and ranks are not closed to others: {error}"
        if trouble and trouble != self.trouble:
            self.log(trouble)
        self.trouble = trouble


def main() -> None:
    """Renew the rules of this node, or exit with why that failed."""
    try:
        enforce(here.node())
    except (SparkopsError, OSError, ValueError) as error:
        sys.exit(f"ports of engines and ranks cannot be closed to others: {error}\nnext: sudo modprobe nf_tables")


if __name__ == "__main__":
    main()
