"""Join what nodes say about their networks into the network of one replica, or say what is broken. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sparkops.config.fabric import FabricRules
from sparkops.config.inventory import NodeConfig
from sparkops.errors import PlanRefused
from sparkops.network import environment, links, ports
from sparkops.network.commands import RDMA_OPTIONS
from sparkops.network.facts import NodeFabric
from sparkops.network.finding import Finding, Severity, require
from sparkops.network.links import Link
from sparkops.network.ports import End


class Transport(StrEnum):
    """How data goes between ranks."""

    ROCE = "RoCE"
    TCP = "TCP"


@dataclass(frozen=True)
class RankNetwork:
    """What one rank is given: its own address, environment, and further options of `docker create`."""

    node: str
    address: str
    interface: str
    env: Mapping[str, str]
    options: tuple[str, ...]


@dataclass(frozen=True)
class Fabric:
    """The network of one replica. `ranks` is by node, in rank order. Printing it shows all that is derived."""

    transport: Transport
    links: tuple[Link, ...]
    ranks: Mapping[str, RankNetwork]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"network: {self.transport}, {len(self.links)} {'link' if len(self.links) == 1 else 'links'}"
        yield from (f"  {line}" for line in (*self.links, *self.notes))
        for rank in self.ranks.values():
            yield f"  {rank.node}: " + " ".join(f"{name}={value}" for name, value in rank.env.items())


@dataclass(frozen=True)
class Survey:
    """All that can be said about the network between some nodes. No links and no problems: nothing joins them."""

    transport: Transport
    links: tuple[Link, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]
    """What each RDMA device is, or lacks."""


def survey(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Survey:
    """Look for links: RoCE, or else plain TCP where the inventory allows it."""
    seen = [end for node, node_facts in facts.items() for end in ports.rdma(node, node_facts, configs[node])]
    wrong = tuple(end for end in seen if isinstance(end, Finding))
    reasons = tuple(reason for node, node_facts in facts.items() for reason in ports.why_none(node, node_facts))
    roce = [end for end in seen if isinstance(end, End) and end.device]
    joined = links.find(roce, list(facts))
    if joined or wrong or not rules.allow_tcp:
        findings = (*wrong, *_findings(joined, roce, rules.mtu), *links.crossed(joined), *_halves(joined, facts))
        return Survey(Transport.ROCE, joined, findings, reasons)
    plain = [end for node, node_facts in facts.items() for end in ports.tcp(node, node_facts, configs[node])]
    shared = (link for link in links.find(plain, list(facts)) if _one_network(link))
    fastest = tuple(sorted(shared, key=lambda link: link.speed_mbit_s, reverse=True)[:1])
    named = [end for end in plain if end.named]
    return Survey(Transport.TCP, fastest, tuple(_findings(fastest, named, 0)), reasons)


def _one_network(link: Link) -> bool:
    """Not a bridge that every node has for itself, as Docker's: it has the same address everywhere."""
    return not link.same_address or any(end.named for end in link.ends)


def _findings(joined: Sequence[Link], ends: Sequence[End], mtu: int) -> Iterator[Finding]:
    for link in joined:
        yield from links.broken(link, ends, mtu)
    yield from links.alone(ends, joined)


def _halves(joined: Sequence[Link], facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    for node in facts if joined else ():
        used = [end.device.name for link in joined for end in link.ends if end.device and end.node == node]
        yield from ports.halves(node, facts[node], used)


def join(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Fabric:
    """The network of ranks on these nodes, in this order. Raises PlanRefused or NodesFailed, naming what is broken."""
    seen = survey(facts, configs, rules)
    require(seen.findings)
    if not seen.links:
        raise _nothing(seen, " and ".join(facts), rules)
    fabric = derive(seen, list(facts), configs)
    require(wrong_environment(fabric, facts))
    return fabric


def wrong_environment(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """What the inventory says about an environment, and the nodes do not have."""
    return environment.check({node: rank.env for node, rank in fabric.ranks.items()}, facts)


def _nothing(seen: Survey, nodes: str, rules: FabricRules) -> PlanRefused:
    if rules.allow_tcp:
        return PlanRefused(
            f"no network joins {nodes}", next_step="Give each an IPv4 address of one subnet: ip -br addr"
        )
    step = "Give both ends of a cable addresses of one subnet, or set `fabric: {allow_tcp: true}` in the inventory."
    return PlanRefused(f"no RoCE between {nodes}: {'; '.join(seen.reasons)}", next_step=step)


def derive(seen: Survey, nodes: Sequence[str], configs: Mapping[str, NodeConfig]) -> Fabric:
    """What each rank is given, from links that are there."""
    ranks = {}
    for number, node in enumerate(nodes):
        ends = [link.ends[number] for link in seen.links]
        derived = environment.tcp(ends[0]) if seen.transport is Transport.TCP else environment.roce(ends)
        ranks[node] = RankNetwork(
            node=node,
            address=str(ends[0].address.ip),
            interface=ends[0].interface.name,
            env={**derived, **(configs[node].env or {})},
            options=() if seen.transport is Transport.TCP else RDMA_OPTIONS,
        )
    return Fabric(seen.transport, seen.links, ranks, tuple(_notes(seen, nodes)))


def _notes(seen: Survey, nodes: Sequence[str]) -> Iterator[str]:
    if seen.transport is Transport.TCP:
        yield f"plain TCP, as fabric.allow_tcp says: no RoCE between {' and '.join(nodes)}: {'; '.join(seen.reasons)}"
    yield from (
        f"{finding.node}: {finding.problem}" for finding in seen.findings if finding.severity is Severity.WARNING
    )
