"""The network of one replica, or of each pair of nodes, joined from the facts of the nodes; or what is broken. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from sparkops.config.fabric import FabricRules
from sparkops.config.node import NodeConfig
from sparkops.errors import PlanRefused
from sparkops.node.network.commands import RDMA_OPTIONS
from sparkops.node.network.finding import Finding, Severity, problems, require
from sparkops.operator.fleet.network import environment, links
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.links import End, Link


class Transport(StrEnum):
    """Transport of data between ranks."""

    ROCE = "RoCE"
    TCP = "TCP"


@dataclass(frozen=True)
class RankNetwork:
    """Network settings of one rank: its own address, environment, and further options of `docker create`."""

    node: str
    address: str
    interface: str
    env: Mapping[str, str]
    options: tuple[str, ...]


@dataclass(frozen=True)
class Fabric:
    """The network of one replica. `ranks` is by node, in rank order."""

    transport: Transport
    links: tuple[Link, ...]
    ranks: Mapping[str, RankNetwork]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        links = f"{len(self.links)} {'link' if len(self.links) == 1 else 'links'}"
        envs = (
            f"{rank.node}: {' '.join(f'{name}={value}' for name, value in rank.env.items())}"
            for rank in self.ranks.values()
        )
        return "\n  ".join([f"network: {self.transport}, {links}", *map(str, self.links), *self.notes, *envs])


@dataclass(frozen=True)
class Survey:
    """The network between some nodes. Without links and problems, nothing joins them."""

    transport: Transport
    links: tuple[Link, ...]
    findings: tuple[Finding, ...]
    reasons: tuple[str, ...]
    """State of each RDMA device."""


def examine(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Survey:
    """Find the links: RoCE, or else plain TCP where the inventory allows it."""
    ends = [end for node, node_facts in facts.items() for end in links.rdma_ports(node, node_facts, configs[node])]
    wrong = tuple(end for end in ends if isinstance(end, Finding))
    reasons = tuple(reason for node, node_facts in facts.items() for reason in links.why_none(node, node_facts))
    roce = [end for end in ends if isinstance(end, End) and end.device]
    joined = links.find(roce, list(facts))
    if joined or wrong or not rules.allow_tcp:
        found = *wrong, *_findings(joined, roce, rules.mtu), *links.crossed(joined), *_halves(joined, facts)
        findings = found if joined else (*found, *links.link_local(facts))
        return Survey(Transport.ROCE, joined, findings, reasons)
    plain = [end for node, node_facts in facts.items() for end in links.tcp_ports(node, node_facts, configs[node])]
    shared = (  # a bridge of each node alone, as Docker's, has the same address everywhere
        link for link in links.find(plain, list(facts)) if not link.same_address or any(end.named for end in link.ends)
    )
    fastest = tuple(sorted(shared, key=lambda link: link.speed_mbit_s, reverse=True)[:1])
    named = [end for end in plain if end.named]
    return Survey(Transport.TCP, fastest, tuple(_findings(fastest, named, 0)), reasons)


def _findings(joined: Sequence[Link], ends: Sequence[End], mtu: int) -> Iterator[Finding]:
    for link in joined:
        yield from links.broken(link, ends, mtu)
    yield from links.alone(ends, joined)


def _halves(joined: Sequence[Link], facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    for node in facts if joined else ():
        used = [end.device.name for link in joined for end in link.ends if end.device and end.node == node]
        yield from links.half_ports(node, facts[node], used, {link.subnet for link in joined})


def join(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Fabric:
    """Return the network of ranks on these nodes, in this order. Raises PlanRefused or NodesFailed for broken links."""
    survey = examine(facts, configs, rules)
    require(survey.findings)
    if not survey.links:
        raise _nothing(survey, " and ".join(facts), rules)
    fabric = derive(survey, list(facts), configs)
    require(wrong_environment(fabric, facts))
    return fabric


def wrong_environment(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """Yield the settings of an environment that a node does not have."""
    return environment.check({node: rank.env for node, rank in fabric.ranks.items()}, facts)


def _nothing(survey: Survey, nodes: str, rules: FabricRules) -> PlanRefused:
    if rules.allow_tcp:
        return PlanRefused(
            f"no network joins {nodes}", next_step="Give both an IPv4 address in one subnet: ip -br addr"
        )
    unset = [f"{found.node}: {found.next_step}" for found in survey.findings if found.code == links.LINK_LOCAL.code]
    step = "Give both ends of a cable addresses of one subnet, or set `fabric: {allow_tcp: true}` in the inventory."
    if unset:  # a cable is there: TCP would go past it
        step = "\n".join(unset)
    return PlanRefused(f"no RoCE between {nodes}: {'; '.join(survey.reasons)}", next_step=step)


def derive(survey: Survey, nodes: Sequence[str], configs: Mapping[str, NodeConfig]) -> Fabric:
    """Derive the settings of each rank from the links."""
    ranks = {}
    for number, node in enumerate(nodes):
        ends = [link.ends[number] for link in survey.links]
        derived = environment.tcp(ends[0]) if survey.transport is Transport.TCP else environment.roce(ends)
        ranks[node] = RankNetwork(
            node=node,
            address=str(ends[0].address.ip),
            interface=ends[0].interface.name,
            env={**derived, **(configs[node].env or {})},
            options=() if survey.transport is Transport.TCP else RDMA_OPTIONS,
        )
    return Fabric(survey.transport, survey.links, ranks, tuple(_notes(survey, nodes)))


def _notes(survey: Survey, nodes: Sequence[str]) -> Iterator[str]:
    if survey.transport is Transport.TCP:
        yield f"plain TCP (fabric.allow_tcp): no RoCE between {' and '.join(nodes)}: {'; '.join(survey.reasons)}"
    yield from (f"{item.node}: {item.problem}" for item in survey.findings if item.severity is Severity.WARNING)


@dataclass(frozen=True)
class Pair:
    """Two nodes; the first would be rank 0. `fabric` only if all their links work."""

    facts: Mapping[str, NodeFabric]
    survey: Survey
    findings: tuple[Finding, ...]
    fabric: Fabric | None


def pairs(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> tuple[Pair, ...]:
    return tuple(_pair({one: facts[one], two: facts[two]}, configs, rules) for one, two in combinations(facts, 2))


def _pair(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Pair:
    survey = examine(facts, configs, rules)
    if not survey.links or problems(survey.findings):
        return Pair(facts, survey, survey.findings, None)
    fabric = derive(survey, list(facts), configs)
    wrong = tuple(wrong_environment(fabric, facts))
    return Pair(facts, survey, (*survey.findings, *wrong), None if wrong else fabric)


def pairs_to_test(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Fabric]]:
    """Yield pairs whose links work, so that each node of such a pair is in one of them."""
    covered: set[str] = set()
    for pair in pairs:
        if pair.fabric and not covered.issuperset(pair.facts):
            covered.update(pair.facts)
            yield pair, pair.fabric


def pair_findings(pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Yield the findings of all pairs. A port without a peer is one only if it has none in any pair of its node."""
    for pair in pairs:
        for finding in pair.findings:
            others = [other for other in pairs if finding.node in other.facts]
            if finding.code != "NO_PEER" or all(finding in other.findings for other in others):
                yield finding
