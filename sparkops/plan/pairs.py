"""Every two nodes of a fleet as a pair: what joins them, and what is wrong between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from sparkops.config.fabric import Fabric as Rules
from sparkops.config.inventory import NodeConfig
from sparkops.facts.fabric import NodeFabric
from sparkops.plan import fabric
from sparkops.plan.fabric import Fabric, Survey
from sparkops.plan.finding import Finding, problems


@dataclass(frozen=True)
class Pair:
    """Two nodes; the first would be rank 0. `made` only where all their links are whole."""

    facts: Mapping[str, NodeFabric]
    survey: Survey
    findings: tuple[Finding, ...]
    made: Fabric | None


def pairs(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: Rules) -> tuple[Pair, ...]:
    """All pairs of these nodes."""
    return tuple(_pair({one: facts[one], two: facts[two]}, configs, rules) for one, two in combinations(facts, 2))


def _pair(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig], rules: Rules) -> Pair:
    seen = fabric.survey(facts, configs, rules)
    if not seen.links or problems(seen.findings):
        return Pair(facts, seen, seen.findings, None)
    made = fabric.derive(seen, list(facts), configs)
    wrong = tuple(fabric.wrong_environment(made, facts))
    return Pair(facts, seen, (*seen.findings, *wrong), None if wrong else made)


def to_try(found: Sequence[Pair]) -> Iterator[tuple[Pair, Fabric]]:
    """Pairs with whole links, so that each node that has one is in one of them."""
    covered: set[str] = set()
    for each in found:
        if each.made and not covered.issuperset(each.facts):
            covered.update(each.facts)
            yield each, each.made


def findings(found: Sequence[Pair]) -> Iterator[Finding]:
    """A port that leads to no other node is a finding only where that is so in every pair of its node."""
    for each in found:
        for finding in each.findings:
            others = [other for other in found if finding.node in other.facts]
            if finding.code != "NO_PEER" or all(finding in other.findings for other in others):
                yield finding
