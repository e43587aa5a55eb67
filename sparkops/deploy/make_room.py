"""Make room for an engine before it starts: drop page cache where it counts as used, and check what is free."""

from __future__ import annotations

from dataclasses import replace

from sparkops.command import Command
from sparkops.config.recipe import Recipe
from sparkops.errors import CommandFailed, ConnectionLost, NotReady
from sparkops.guard_client.engine_spec import EngineSpec
from sparkops.memory import pages
from sparkops.memory.pools import counts_page_cache, pools
from sparkops.nodes import host
from sparkops.nodes.connected import Member
from sparkops.nodes.host import HostFacts
from sparkops.nodes.progress import Event, Tell

DROP_ALL = "sudo sh -c 'sync; echo 3 >/proc/sys/vm/drop_caches' on {node} drops the page cache of all files."


def drop(member: Member, command: Command, tell: Tell) -> None:
    """Drop page cache, and report what came of it: a start never fails for this alone."""
    try:
        result = member.node.run(command).stdout.strip()
    except (CommandFailed, ConnectionLost, NotReady) as error:
        result = f"page cache not dropped: {error.problem}"
    tell(Event(member.name, result))


def require(member: Member, recipe: Recipe, back_gib: float = 0.0) -> None:
    """Raise NotReady unless the claim fits now. `back_gib` is what engines will free that stop before the start."""
    name, facts = member.name, _facts(member)
    for pool in pools(recipe, facts, dropped=True):
        given = replace(pool, available_gib=pool.available_gib + back_gib)
        if given.lack:
            after = f", with {back_gib:g} GiB that the old release gives back" if back_gib else ""
            cached = pool.available_gib < facts.memory_available_gib
            step = DROP_ALL.format(node=name) if cached else "Stop what uses the memory: sparkops status"
            raise NotReady(name, f"{given.lack}{after}", next_step=step)


def require_without(member: Member, new: EngineSpec, old: EngineSpec | None, tell: Tell) -> None:
    """Raise NotReady where a release would lack memory, for page cache alone, once the old one has stopped.

    Found out while the old release still serves.
    """
    recipe = new.parsed
    if not counts_page_cache(recipe, _facts(member)):
        return
    for spec in (old, new):
        if spec is not None:
            drop(member, pages.drop(spec.parsed, spec.config), tell)
    require(member, recipe, old.parsed.memory.claim_gib if old else 0.0)


def _facts(member: Member) -> HostFacts:
    return host.parse(member.node.run(host.FREE).stdout)
