"""Try the network between nodes before a model is loaded over it: all checks at once, each with its deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkops.config import assets
from sparkops.errors import SparkopsError
from sparkops.network import image_check
from sparkops.network.answers import Met
from sparkops.network.checks import Check, Outcome, Ranks, bandwidths, equipment, paths, same_driver
from sparkops.network.facts import NodeFabric, fabric_query, parse_fabric
from sparkops.network.finding import Finding
from sparkops.network.topology import Fabric
from sparkops.nodes.connected import Connected, Member
from sparkops.nodes.parallel import on_each
from sparkops.nodes.progress import Event, Tell, silent


def facts_of(member: Member, root: str = "") -> NodeFabric:
    """Return the network of one node as it is now. `root` is for nodes that tests make up."""
    return parse_fabric(member.node.run(fabric_query(root)).stdout)


def run(
    connected: Connected,
    fabric: Fabric,
    facts: Mapping[str, NodeFabric],
    ranks: Ranks | None = None,
    tell: Tell = silent,
) -> tuple[Finding, ...]:
    """Try the links of `fabric`, and with `ranks` also what the ranks will run on them.

    Without `ranks` only packets are sent: nodes that serve do not notice. A broken link is known after 3 s, all else
    after 10 s more at most. Nothing is raised for what is found; finding.require() does that.
    """
    findings = [*equipment(fabric, facts)]
    images: dict[str, str] = {}
    if ranks:
        inspects = {node: connected.members[node].engine.trusted(ranks.image) for node in fabric.ranks}
        images = {node: inspect["Id"] for node, inspect in inspects.items() if inspect}
        findings += [*same_driver(fabric, facts), *image_check.same_image(ranks.image, inspects)]
    broken = _try(connected, [*paths(fabric, facts)], tell)
    if broken or not ranks:
        return (*findings, *broken)
    checks = [*bandwidths(fabric, facts)]
    if len(images) == len(fabric.ranks):
        checks += image_check.checks(fabric, ranks, images, assets.load_meeting())
    return (*findings, *_try(connected, checks, tell))


def _try(connected: Connected, checks: Sequence[Check], tell: Tell) -> list[Finding]:
    """Carry out all checks at once, and read what became of them."""
    outcomes = _carry_out(connected, checks, tell)
    pairs = [*zip(checks, outcomes, strict=True)]
    mets = {check.node: image_check.read(outcome[0]) for check, outcome in pairs if check.meets}
    findings = [finding for check, outcome in pairs for finding in check.judge(outcome)]
    return [*findings, *image_check.same_versions({node: met for node, met in mets.items() if isinstance(met, Met)})]


def _carry_out(connected: Connected, checks: Sequence[Check], tell: Tell) -> list[list[Outcome]]:
    """All checks at once, with their own connections' channels; the outcomes in the checks' order."""
    names = [str(number) for number in range(len(checks))]

    def work(name: str) -> list[Outcome]:
        check = checks[int(name)]
        tell(Event(check.node, check.title, lasting=False))
        return list(_outcomes(connected.members[check.node], check))

    done = on_each(names, work, connected.cancel)
    return [outcome if isinstance(outcome, list) else [outcome] for outcome in done.values()]


def _outcomes(member: Member, check: Check) -> Iterator[Outcome]:
    for command in check.commands:
        try:
            yield member.node.run(command).stdout
        except SparkopsError as error:
            yield error
            return
