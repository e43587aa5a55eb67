"""`python -m tests.real.stepwise INVENTORY TEXT` replaces the gateway, and can be killed before each of its commands.

It prints each command that changes a container of the gateway, and waits for a line on stdin before it runs it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparkops.command import Command, Completed
from sparkops.config import inventory
from sparkops.gateway.commands import CONTAINER
from sparkops.node.node import Node
from sparkops.node.progress import silent
from sparkops.operator.deploy.agents import agents
from sparkops.operator.fleet.connected import connect
from tests.real.test_agents import CHAT, other_gateway


@dataclass(frozen=True)
class Stepwise:
    """A node whose commands wait."""

    node: Node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.node, name)

    def run(self, command: Command, **options: Any) -> Completed:
        """See Node.run."""
        if command.changes and CONTAINER in str(command):
            print(command, flush=True)
            sys.stdin.readline()
        return self.node.run(command, **options)


def main() -> None:
    fleet = inventory.load(Path(sys.argv[1]))
    specs = other_gateway(fleet, agents.load(fleet, [CHAT]), more=sys.argv[2].encode())
    with connect(fleet) as connected:
        members = {name: replace(member, node=Stepwise(member.node)) for name, member in connected.members.items()}
        agents.ensure(replace(connected, members=members), specs, silent, apply_gateway=True)


if __name__ == "__main__":
    main()
