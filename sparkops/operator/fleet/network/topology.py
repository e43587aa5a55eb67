"""The network of one replica, or of each pair of nodes, joined from the facts of the nodes; or what is broken. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, pairwise

from sparkops.config.fabric import FabricRules
from sparkops.config.node import NodeConfig
from sparkops.config.serve import Serve
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
    """The network of one replica. `ranks` is by node, in rank order.

    `links` carry the data. Each joins all ranks, or, in a ring without a switch, two that follow each other.
    """

    transport: Transport
    links: tuple[Link, ...]
    ranks: Mapping[str, RankNetwork]
    notes: tuple[str, ...] = ()

    @property
    def hops(self) -> tuple[Link, ...]:
        """The links between each rank and the next one, as NCCL's ring uses them: from the first end to the second."""
        return tuple(_between(self.links, *next_to_each_other(list(self.ranks))))

    @property
    def complete(self) -> bool:
        """Whether a link joins any two ranks."""
        return all(any(_between(self.links, pair)) for pair in combinations(self.ranks, 2))

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
    meeting: Link | None = None
    """The network of all nodes on which the ranks of a ring meet; None where a link joins all."""
    gap: tuple[str, ...] = ()
    """Nodes without a link, of which the ranks would follow each other."""


def examine(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Survey:
    """Find the links: RoCE, or else plain TCP where the inventory allows it."""
    ends = _ends(facts, configs)
    wrong = tuple(end for end in ends if isinstance(end, Finding))
    reasons = tuple(reason for node, node_facts in facts.items() for reason in links.why_none(node, node_facts))
    roce = [end for end in ends if isinstance(end, End) and end.device]
    joined = links.find(roce, list(facts))
    gaps = (pair for pair in next_to_each_other(list(facts)) if not any(_between(joined, pair)))
    gap = next(gaps, ()) if joined else ()
    plain = [end for node, node_facts in facts.items() for end in links.tcp_ports(node, node_facts, configs[node])]
    if (joined and not gap) or wrong or not rules.allow_tcp:
        whole = all(len(link.ends) == len(facts) for link in joined)
        found = *wrong, *_findings(joined, roce, rules.mtu), *_order(joined, whole=whole), *_halves(joined, facts)
        findings = found if joined else (*found, *links.link_local(facts))
        meeting = None if whole else next(iter(_shared(links.lan_ports(facts, configs), facts)), None)
        return Survey(Transport.ROCE, joined, findings, reasons, meeting, gap)
    fastest = _shared(plain, facts)
    named = [end for end in plain if end.named]
    return Survey(Transport.TCP, fastest, tuple(_findings(fastest, named, 0)), reasons)


def _ends(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig]) -> list[End | Finding]:
    return [end for node, node_facts in facts.items() for end in links.rdma_ports(node, node_facts, configs[node])]


def next_to_each_other(nodes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each node with the next one, and the last with the first, as in NCCL's ring."""
    yield from pairwise(nodes)
    if len(nodes) > 2:
        yield nodes[-1], nodes[0]


def _between(joined: Iterable[Link], *pairs: Sequence[str]) -> Iterator[Link]:
    """Yield the links of pairs of nodes, each with two ends, in the order of the pair."""
    for one, two in pairs:
        for link in joined:
            here, far = link.end(one), link.end(two)
            if here and far:
                yield Link(link.subnet, (here, far))


def _shared(plain: Iterable[End], facts: Mapping[str, NodeFabric]) -> tuple[Link, ...]:
    """Return the fastest network of all nodes, if there is one."""
    shared = (  # a bridge of each node alone, as Docker's, has the same address everywhere
        link
        for link in links.find(plain, list(facts))
        if len(link.ends) == len(facts) and (not link.same_address or any(end.named for end in link.ends))
    )
    return tuple(sorted(shared, key=lambda link: link.speed_mbit_s, reverse=True)[:1])


def _findings(joined: Sequence[Link], ends: Sequence[End], mtu: int) -> Iterator[Finding]:
    for link in joined:
        yield from links.broken(link, ends, mtu)
    yield from links.alone(ends, joined)


def _order(joined: Sequence[Link], *, whole: bool) -> Iterator[Finding]:
    """Yield ports that NCCL may pair wrongly. `whole`: each link joins all nodes."""
    return links.crossed(joined) if whole else links.same_ports(joined)


def _halves(joined: Sequence[Link], facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    for node in facts if joined else ():
        used = [end.device.name for link in joined for end in link.ends if end.device and end.node == node]
        yield from links.half_ports(node, facts[node], used, {link.subnet for link in joined})


def ordered(
    facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], nodes: Sequence[str]
) -> tuple[str, ...]:
    """Return the nodes in an order in which cables join each to the next, and the last to the first.

    That is `nodes` itself, with a switch or up to three nodes. The first one stays first. Without such an order `nodes`
    is returned, and join() reports what is missing.
    """
    if len(nodes) <= 3 or not all(node in facts for node in nodes):
        return tuple(nodes)
    ends = _ends({node: facts[node] for node in nodes}, configs)
    cables = links.find([end for end in ends if isinstance(end, End) and end.device], nodes)
    if any(len(cable.ends) > 2 for cable in cables):
        return tuple(nodes)
    joined = [(one.node, two.node) for one, two in (cable.ends for cable in cables)]
    linked = {*joined, *((two, one) for one, two in joined)}
    return next(_rings(tuple(nodes[:1]), nodes, linked), tuple(nodes))


def _rings(way: tuple[str, ...], nodes: Sequence[str], linked: set[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """Yield the closed ways over links through all nodes that start with `way`."""
    if len(way) == len(nodes) and (way[-1], way[0]) in linked:
        yield way
    for node in nodes:
        if node not in way and (way[-1], node) in linked:
            yield from _rings((*way, node), nodes, linked)


def join(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Fabric:
    """Return the network of ranks on these nodes, in this order. Raises PlanRefused or NodesFailed for broken links."""
    survey = examine(facts, configs, rules)
    require(survey.findings)
    if not survey.links or survey.gap:
        raise _nothing(survey, " and ".join(survey.gap or facts), rules)
    if survey.meeting is None and any(len(link.ends) < len(facts) for link in survey.links):
        problem = (
            f"no network joins {' and '.join(facts)}: their cables form a ring, whose ranks meet on another network"
        )
        raise PlanRefused(problem, next_step="Connect all to one LAN: ip -br addr")
    fabric = derive(survey, list(facts), configs)
    require(wrong_environment(fabric, facts))
    return fabric


def suited(fabric: Fabric, serve: Serve) -> Fabric:
    """Return the network of a recipe's ranks. Raises PlanRefused if ranks would talk that no link joins.

    The ranks of all stages together form a ring of NCCL too (vLLM's world group), so that in a ring of four or more
    there is no place for a second one. Ray numbers the ranks by the addresses of their nodes
    (vllm/v1/executor/ray_executor.py).
    """
    if fabric.complete:
        return fabric
    where = f"{' and '.join(fabric.ranks)} are cabled in a ring"
    if serve.executor == "ray":
        raise PlanRefused(f"{where}, in which Ray does not keep the order of ranks", next_step="Set serve.executor: mp")
    if serve.tensor_parallel > 1 and serve.pipeline_parallel > 1:
        sizes = f"{serve.tensor_parallel} x {serve.pipeline_parallel}"
        step = f"Set tensor_parallel or pipeline_parallel to {serve.ranks} and the other one to 1, or use a switch."
        raise PlanRefused(f"{where}: with {sizes} ranks some would talk that no cable joins", next_step=step)
    return fabric


def wrong_environment(fabric: Fabric, facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """Yield the settings of an environment that a node does not have."""
    return environment.check({node: rank.env for node, rank in fabric.ranks.items()}, facts)


def _nothing(survey: Survey, nodes: str, rules: FabricRules) -> PlanRefused:
    if rules.allow_tcp:
        return PlanRefused(
            f"no network joins {nodes}", next_step="Give each an IPv4 address in one subnet: ip -br addr"
        )
    unset = [f"{found.node}: {found.next_step}" for found in survey.findings if found.code == links.LINK_LOCAL.code]
    step = "Give both ends of a cable addresses of one subnet, or set `fabric: {allow_tcp: true}` in the inventory."
    if unset:  # a cable is there: TCP would go past it
        step = "\n".join(unset)
    return PlanRefused(f"no RoCE between {nodes}: {'; '.join(survey.reasons)}", next_step=step)


def derive(survey: Survey, nodes: Sequence[str], configs: Mapping[str, NodeConfig]) -> Fabric:
    """Derive the settings of each rank from the links."""
    ranks = {}
    halves = max(Counter(link.nodes for link in survey.links).values()) > 1
    for node in nodes:
        ends = [end for link in survey.links if (end := link.end(node))]
        own = survey.meeting.end(node) if survey.meeting else None
        if survey.transport is Transport.TCP:
            derived = environment.tcp(ends[0])
        elif own:
            derived = environment.ring(ends, own, size=len(nodes), halves=halves)
        else:
            derived = environment.roce(ends)
        first = own or ends[0]
        ranks[node] = RankNetwork(
            node=node,
            address=str(first.address.ip),
            interface=first.interface.name,
            env={**derived, **(configs[node].env or {})},
            options=() if survey.transport is Transport.TCP else RDMA_OPTIONS,
        )
    return Fabric(survey.transport, survey.links, ranks, tuple(_notes(survey, nodes)))


def _notes(survey: Survey, nodes: Sequence[str]) -> Iterator[str]:
    if survey.transport is Transport.TCP:
        yield f"plain TCP (fabric.allow_tcp): no RoCE between {' and '.join(nodes)}: {'; '.join(survey.reasons)}"
    if survey.meeting:
        yield f"a ring of {len(nodes)} nodes without a switch, whose ranks meet on {survey.meeting.subnet}"
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
