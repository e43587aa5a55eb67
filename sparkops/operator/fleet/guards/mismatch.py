"""Where the inventory contradicts the fleet: the problem in words, and the next step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Mismatch(NamedTuple):
    """A difference between the inventory and what the guards report."""

    problem: str
    next_step: str


def gateway_node(gateway: str, leader: str, services: Sequence[str] = ()) -> Mismatch:
    """Return that `gateway.node` of the inventory is `gateway`, while the guard on `leader` leads the fleet."""
    led = ", ".join(services) or "this fleet"
    step = f"Set `gateway.node: {leader}` in the inventory; if the gateway on {leader} is lost: "
    return Mismatch(
        f"{leader} leads {led}: gateway.node is {gateway}, expected {leader}",
        f"{step}sparkops gateway rebuild {gateway}",
    )


def node_name(node: str, fleet_name: str) -> Mismatch:
    """Return that the inventory calls a node `node`, while its guard has another name for it."""
    return Mismatch(
        f"the fleet calls this node {fleet_name}",
        f"Rename {node} to {fleet_name} in the inventory. To rename a node, stop its services first.",
    )
