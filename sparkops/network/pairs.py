"""Every two nodes of a fleet as a pair: what joins them, and what is wrong between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sparkops.config.fabric import FabricRules
from sparkops.config.inventory import NodeConfig
from sparkops.network import topology
from sparkops.network.facts import NodeFabric
from sparkops.network.finding import Finding, problems
from sparkops.network.topology import Fabric, Survey


@dataclass(frozen=True)
class Pair:
    """Two nodes; the first would be rank 0. `made` only where all their links are whole."""

    facts: Mapping[str, NodeFabric]
    survey: Survey
    findings: tuple[Finding, ...]
    made: Fabric | None


def pairs(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> tuple[Pair, ...]:
    """All pairs of these nodes."""
    return tuple(_pair({one: facts[one], two: facts[two]}, configs, rules) for one, two in combinations(facts, 2))


def _pair(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: FabricRules) -> Pair:
    seen = topology.survey(facts, configs, rules)
    if not seen.links or problems(seen.findings):
        return Pair(facts, seen, seen.findings, None)
    fabric = topology.derive(seen, list(facts), configs)
    wrong = tuple(topology.wrong_environment(fabric, facts))
    return Pair(facts, seen, (*seen.findings, *wrong), None if wrong else fabric)


def to_try(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Fabric]]:
    """Pairs with whole links, so that each node that has one is in one of them."""
    covered: set[str] = set()
    for pair in pairs:
        if pair.made and not covered.issuperset(pair.facts):
            covered.update(pair.facts)
            yield pair, pair.made


def findings(pairs: Sequence[Pair]) -> Iterator[Finding]:
    """A port that leads to no other node is a finding only where that is so in every pair of its node."""
    for pair in pairs:
        for finding in pair.findings:
            others = [other for other in pairs if finding.node in other.facts]
            if finding.code != "NO_PEER" or all(finding in other.findings for other in others):
                yield finding
