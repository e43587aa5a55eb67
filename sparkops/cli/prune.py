"""The verb prune."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import typer

from sparkops.cli.inventory import load_fleet
from sparkops.cli.options import JSON, NODES, WAIT, YES, in_range
from sparkops.cli.progress import progress
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import confirm, data, data_json, say
from sparkops.config.inventory import Fleet
from sparkops.errors import NodeError, SparkopsError, joined
from sparkops.nodes.connected import Connected, connect
from sparkops.nodes.host import GIB
from sparkops.nodes.progress import Tell
from sparkops.prune.plan import Policy, Pruning, plan
from sparkops.prune.run import Pruned, SeenDisks, read_nodes, remove


def prune(
    context: typer.Context,
    node: NODES = None,
    keep: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Newest releases of each service that stay, running or not")
    ] = 3,
    free: Annotated[
        float | None,
        typer.Option(callback=in_range, metavar="GIB", help="Stop once this much of Docker's disk is free"),
    ] = None,
    build_cache: Annotated[
        float | None,
        typer.Option(callback=in_range, metavar="GIB", help="Shrink BuildKit's cache to this size; default: keep all"),
    ] = None,
    wait: WAIT = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed, what stays and why")] = False,
    yes: YES = False,
    json: JSON = False,
) -> None:
    """Remove unused containers, images and caches

    Keeps those of active, previous, running and new releases.

    Example: sparkops prune --keep 2 --dry-run
    """
    settings: Settings = context.obj
    policy = Policy(keep, _bytes(free), _bytes(build_cache))
    done: Mapping[str, Pruned] = {}
    with _connected(load_fleet(settings), node or ()) as (connected, tell, nodes):
        seen = read_nodes(connected, nodes)
        shown = plan(seen.nodes, seen.intended, policy)
        if not json:
            _show(seen, shown, policy, why=dry_run)
        if shown.removals and not dry_run and confirm(_question(shown), yes=yes):
            done = remove(connected, tell, seen, policy, shown, wait)
    for name, each in done.items():
        say(f"{name}: {len(each.removed)} removed, {_gib(each.after)} free ({_gib(each.before)} before)", fg="green")
    if json:
        data_json(_as_json(seen, shown, done))
    _raise_where_wrong(seen, policy, done)


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * GIB)


def _gib(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / GIB:.2f} GiB"


@contextmanager
def _connected(fleet: Fleet, named: tuple[str, ...] | list[str]) -> Iterator[tuple[Connected, Tell, list[str]]]:
    """Connect to the nodes and to the gateway's node, whose guard has the journals; yield the nodes as well."""
    nodes = list(named or fleet.nodes)
    gateway = [fleet.gateway.node] if fleet.gateway else []
    with connect(fleet, list(dict.fromkeys([*nodes, *gateway]))) as connected, progress() as tell:
        yield connected, tell, nodes


def _question(shown: Pruning) -> str:
    size = sum(each.size for each in shown.removals)
    return f"Remove {len(shown.removals)} items (about {_gib(size)})?"


def _show(seen: SeenDisks, shown: Pruning, policy: Policy, *, why: bool) -> None:
    for node in seen.nodes:
        due = [each for each in shown.removals if each.node == node.node]
        total = f"about {_gib(sum(each.size for each in due))}" if due else "nothing"
        data(f"{node.node}: {total} to remove, {_gib(node.free)} free")
        for each in due:
            data(f"  - {each.kind:<12} {each.size / GIB:>8.2f} GiB  {each.name}")
        if policy.cache is None and node.cache_shared and any(each.kind == "image" for each in due):
            held = f"BuildKit also holds {_gib(node.cache_shared)} of these images"
            say(f"  {node.node}: {held}; only --build-cache frees them")
        for kept in (each for each in shown.kept if why and each.node == node.node):
            data(f"    {kept.kind:<12} {'stays':>12}  {kept.name}: {kept.why}")


def _as_json(seen: SeenDisks, shown: Pruning, done: Mapping[str, Pruned]) -> dict[str, object]:
    removed = {each.key for pruned in done.values() for each in pruned.removed}
    nodes = {
        node.node: {
            "free_bytes": node.free,
            "free_bytes_after": done[node.node].after if node.node in done else None,
            "remove": [
                {"kind": e.kind, "name": e.name, "bytes": e.size, "service": e.service, "removed": e.key in removed}
                for e in shown.removals
                if e.node == node.node
            ],
            "keep": [{"kind": e.kind, "name": e.name, "why": e.why} for e in shown.kept if e.node == node.node],
        }
        for node in seen.nodes
    }
    return {"nodes": nodes}


def _raise_where_wrong(seen: SeenDisks, policy: Policy, done: Mapping[str, Pruned]) -> None:
    """Raise what could not be read, and where too little space is free."""
    wrong: list[SparkopsError] = list(seen.problems)
    for name, each in done.items():
        if policy.free is not None and each.after is not None and each.after < policy.free:
            step = "Name a smaller --keep; --build-cache frees what BuildKit shares with images that are gone."
            wrong.append(NodeError(name, f"{_gib(each.after)} free, expected {_gib(policy.free)}", next_step=step))
    if wrong:
        raise joined(wrong)
