"""Try the network between nodes before a model is loaded over it: all checks at once, each with its deadline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkops.config import assets
from sparkops.errors import SparkopsError
from sparkops.facts import fabric as facts_fabric
from sparkops.facts.fabric import NodeFabric
from sparkops.facts.preflight import Met
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.parallel import on_each
from sparkops.fleet.progress import Event, Tell, silent
from sparkops.plan import meeting, preflight
from sparkops.plan.fabric import Fabric
from sparkops.plan.finding import Finding
from sparkops.plan.preflight import Check, Outcome, Ranks


def read(connected: Connected, root: str = "") -> dict[str, NodeFabric]:
    """What every connected node says about its network now. `root` is for nodes that tests make up."""
    return connected.all(lambda member: facts_of(member, root))


def facts_of(member: Member, root: str = "") -> NodeFabric:
    """What one node says about its network."""
    return facts_fabric.parse(member.node.run(facts_fabric.query(root)).stdout)


def run(
    connected: Connected,
    made: Fabric,
    facts: Mapping[str, NodeFabric],
    ranks: Ranks | None = None,
    tell: Tell = silent,
) -> tuple[Finding, ...]:
    """Try the links of `made`, and with `ranks` also what the ranks will run on them.

    Without `ranks` only packets are sent: nodes that serve do not notice. A broken link is known after 3 s, all else
    after 10 s more at most. Nothing is raised for what is found; finding.require() does that.
    """
    found = [*preflight.equipment(made, facts)]
    images: dict[str, str] = {}
    if ranks:
        inspects = {node: connected.members[node].engine.trusted(ranks.image) for node in made.ranks}
        images = {node: inspect["Id"] for node, inspect in inspects.items() if inspect}
        found += [*preflight.same_driver(made, facts), *meeting.same_image(ranks.image, inspects)]
    broken = _try(connected, [*preflight.paths(made, facts)], tell)
    if broken or not ranks:
        return (*found, *broken)
    checks = [*preflight.bandwidths(made, facts)]
    if len(images) == len(made.ranks):
        checks += meeting.checks(made, ranks, images, assets.load_meeting())
    return (*found, *_try(connected, checks, tell))


def _try(connected: Connected, checks: Sequence[Check], tell: Tell) -> list[Finding]:
    """Carry out all checks at once, and read what became of them."""
    outcomes = _carry_out(connected, checks, tell)
    pairs = [*zip(checks, outcomes, strict=True)]
    mets = {check.node: meeting.read(outcome[0]) for check, outcome in pairs if check.meets}
    found = [finding for check, outcome in pairs for finding in check.judge(outcome)]
    return [*found, *meeting.same_versions({node: met for node, met in mets.items() if isinstance(met, Met)})]


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
