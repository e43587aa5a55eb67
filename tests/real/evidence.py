"""What guards have saved of a failure, read where `history` says that it is."""

from __future__ import annotations

from tests.fleet.node import FleetNode
from tests.real.program import Cli

COPY = ": docker cp sparkops-guard:"


def saved(cli: Cli, service: str, nodes: dict[str, FleetNode], file: str) -> str:
    """A file of a service's newest evidence."""
    events = cli("history", service, "--json").json["events"]
    (where,) = [event for event in events if event["kind"] == "evidence"][-1]["evidence"]
    node, _, command = where.partition(COPY)
    return nodes[node].exec("docker", "exec", "sparkops-guard", "cat", f"{command.split()[0]}/{file}")
