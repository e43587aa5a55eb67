"""Checks on the nodes before a swap stops anything: the network of ranks, and memory without page cache."""

from __future__ import annotations

from dataclasses import replace

from sparkops.command import Command
from sparkops.config.recipe import Recipe
from sparkops.config.release import Rank
from sparkops.errors import CommandFailed, ConnectionLost, NotReady
from sparkops.node import host
from sparkops.node.host import HostFacts
from sparkops.node.member import Member
from sparkops.node.network.finding import Finding, require
from sparkops.node.progress import Event, OnEvent
from sparkops.operator.deploy.plan import Plan
from sparkops.operator.deploy.preconditions import own
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.network import preflight
from sparkops.operator.fleet.network.checks import Ranks
from sparkops.operator.fleet.network.topology import Fabric
from sparkops.operator.fleet.parallel import all_or_raise, on_each
from sparkops.serving import engine_spec
from sparkops.serving.engine_spec import EngineSpec
from sparkops.serving.memory import pages
from sparkops.serving.memory.pools import counts_page_cache, pools
from sparkops.swap.model import Deployment

DROP_ALL = "sudo sh -c 'sync; echo 3 >/proc/sys/vm/drop_caches' on {node} drops the page cache of all files."


def require_network(connected: Connected, plan: Plan, report: OnEvent) -> None:
    """Try the network that ranks will load over, and the image on it, unless all run already.

    Raises PlanRefused or NodesFailed.
    """
    replicas = zip(plan.replicas, plan.networks, strict=False)
    due = {ranks[0].node: (ranks, network) for ranks, network in replicas if not _runs(plan, ranks)}
    found = on_each(due, lambda node: _network(connected, plan, *due[node], report), connected.cancel)
    require(finding for findings in all_or_raise(found).values() for finding in findings)


def _network(
    connected: Connected, plan: Plan, ranks: tuple[Rank, ...], network: Fabric, report: OnEvent
) -> tuple[Finding, ...]:
    """Try the network of one replica. Those of a plan share no node, so they are tried at once."""
    recipe, tag = plan.release.recipe, plan.nodes[ranks[0].node].tag or plan.release.image
    tested = Ranks(tag, recipe.name, ranks[0].rendezvous_port, ray=recipe.serve.executor == "ray")
    fabrics = {rank.node: plan.fabrics[rank.node] for rank in ranks}
    return preflight.run(connected, network, fabrics, tested, report)


def _runs(plan: Plan, ranks: tuple[Rank, ...]) -> bool:
    """Return whether every rank ran when the nodes were read, and all are of one attempt."""
    running = [container for rank in ranks if (container := own(rank, plan.nodes[rank.node]))]
    return len(running) == len(ranks) and len({container.generation for container in running}) == 1


def require_memory(connected: Connected, target: Deployment, active: Deployment | None, report: OnEvent) -> None:
    """Raise NotReady where page cache would keep an in-place swap from starting, before anything is stopped."""
    old = {rank.node: engine_spec.of(rank) for rank in active.ranks} if active else {}
    new = {rank.node: engine_spec.of(rank) for rank in target.less(active.replicas if active else ()).ranks}

    def check(name: str) -> None:
        require_without(connected.member(name), new[name], old.get(name), report)

    all_or_raise(on_each(new, check, connected.cancel))


def require_without(member: Member, new: EngineSpec, old: EngineSpec | None, report: OnEvent) -> None:
    """Raise NotReady where a release would lack memory, for page cache alone, once the old one has stopped."""
    recipe = new.parsed
    if not counts_page_cache(recipe, _facts(member)):
        return
    for spec in (old, new):
        if spec is not None:
            _drop(member, pages.drop(spec.parsed, spec.config), report)
    require_free(member, recipe, old.parsed.memory.claim_gib if old else 0.0)


def _drop(member: Member, command: Command, report: OnEvent) -> None:
    """Drop page cache, and report the result: a start never fails for this alone."""
    try:
        result = member.node.run(command).stdout.strip()
    except (CommandFailed, ConnectionLost, NotReady) as error:
        result = f"page cache not dropped: {error.problem}"
    report(Event(member.name, result))


def require_free(member: Member, recipe: Recipe, freed_gib: float = 0.0) -> None:
    """Raise NotReady unless the claim fits once engines have freed `freed_gib`."""
    name, facts = member.name, _facts(member)
    for pool in pools(recipe, facts, dropped=True):
        freed = replace(pool, available_gib=pool.available_gib + freed_gib)
        if freed.lack:
            after = f", including {freed_gib:g} GiB of the old release" if freed_gib else ""
            cached = pool.available_gib < facts.memory_available_gib
            step = DROP_ALL.format(node=name) if cached else "Stop a service on that node: sparkops status"
            raise NotReady(name, f"{freed.lack}{after}", next_step=step)


def _facts(member: Member) -> HostFacts:
    return host.parse(member.node.run(host.FREE).stdout)
