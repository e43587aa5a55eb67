"""Test the network between nodes before a model is loaded over it: all checks at once, each with its deadline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkops.config import assets
from sparkops.errors import NodeError, SparkopsError
from sparkops.node.member import Member
from sparkops.node.network.finding import Finding
from sparkops.node.progress import Event, OnEvent, silent
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.network import checks
from sparkops.operator.fleet.network.checks import Check, Outcome, Ranks
from sparkops.operator.fleet.network.facts import NodeFabric, fabric_query, parse_fabric
from sparkops.operator.fleet.network.topology import Fabric
from sparkops.operator.fleet.parallel import on_each


def facts_of(member: Member, root: str = "") -> NodeFabric:
    """Return the network of one node as it is now. Raises NodeError. Tests use `root` for the files of a node."""
    printed = member.node.run(fabric_query(root)).stdout
    try:
        return parse_fabric(printed)
    except ValueError as error:
        raise NodeError(member.name, f"unexpected output of its shell: {error}") from None


def run(
    connected: Connected,
    fabric: Fabric,
    facts: Mapping[str, NodeFabric],
    ranks: Ranks | None = None,
    report: OnEvent = silent,
) -> tuple[Finding, ...]:
    """Test the links of `fabric`, and with `ranks` also the image of the ranks on them.

    Without `ranks` only packets are sent, which do not disturb nodes that serve. A broken link is known after 3 s, all
    else after 10 s more at most. finding.require() raises errors for the findings.
    """
    findings = [*checks.equipment(fabric, facts)]
    images: dict[str, str] = {}
    if ranks:
        inspects = connected.only([*fabric.ranks]).all(lambda member: member.engine.trusted(ranks.image))
        images = {node: inspect["Id"] for node, inspect in inspects.items() if inspect}
        findings += [*checks.same_driver(fabric, facts), *checks.same_image(ranks.image, ranks.recipe, inspects)]
    broken = _try(connected, [*checks.paths(fabric, facts)], report)
    if broken or not ranks:
        return (*findings, *broken)
    due = [*checks.bandwidths(fabric, facts)]
    if len(images) == len(fabric.ranks):
        due += checks.rendezvous(fabric, ranks, images, assets.load_rendezvous())
    return (*findings, *checks.without_echoes(_try(connected, due, report)))


def _try(connected: Connected, due: Sequence[Check], report: OnEvent) -> list[Finding]:
    """Run the checks at once, each in a channel of its own, and judge their outcomes."""
    numbers = {str(number): check for number, check in enumerate(due)}

    def work(number: str) -> list[Outcome]:
        check, outcomes = numbers[number], list[Outcome]()
        report(Event(check.node, check.title, lasting=False))
        try:
            for command in check.commands:
                outcomes.append(connected.members[check.node].node.run(command).stdout)
        except SparkopsError as error:
            outcomes.append(error)
        return outcomes

    results = on_each(numbers, work, connected.cancel)
    outcomes = [(numbers[key], result if isinstance(result, list) else [result]) for key, result in results.items()]
    return [finding for check, outcome in outcomes for finding in check.judge(outcome)]
