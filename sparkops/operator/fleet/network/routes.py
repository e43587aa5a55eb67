"""Addresses at which a node reaches another one: over the fabric where they share a network, else its own."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.config.node import NodeConfig
from sparkops.errors import CommandFailed
from sparkops.node.member import Member
from sparkops.operator.fleet.network import preflight
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.links import End, rdma_ports


@dataclass(frozen=True)
class Host:
    """A node as others reach it. `fabric` is its network; None if it cannot be read."""

    name: str
    config: NodeConfig
    fabric: NodeFabric | None = None

    @property
    def ends(self) -> list[End]:
        """Its ports for the fabric that can carry data. Wrong settings of the inventory are reported elsewhere."""
        ends = rdma_ports(self.name, self.fabric, self.config) if self.fabric else ()
        return [end for end in ends if isinstance(end, End) and end.up]


def addresses(source: Host, target: Host) -> tuple[str, ...]:
    """Return addresses of the target for connections from the source, the fastest first.

    Those in a network that both have a port in; then the address of the inventory. A local node has none of these: it
    calls itself 127.0.0.1.
    """
    networks = {end.subnet for end in source.ends}
    shared = [str(end.address.ip) for end in target.ends if end.subnet in networks]
    configured = [target.config.address] if target.config.transport == "ssh" else []
    return tuple(dict.fromkeys([*shared, *configured]))


def host_of(member: Member) -> Host:
    """Return a node as others reach it: at its own address if its network cannot be read."""
    try:
        return Host(member.name, member.config, preflight.facts_of(member))
    except (CommandFailed, ValueError):
        return Host(member.name, member.config)
