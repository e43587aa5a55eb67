"""prune."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import WAIT, Settings, in_range, keep_of
from sparkops.cli.terminal import confirm, data, data_json, progress, say
from sparkops.errors import NodeError, NodesFailed, SparkopsError
from sparkops.facts.host import GIB

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.fleet.planning import Order
    from sparkops.fleet.prune import Pruned, Seen
    from sparkops.plan.prune import Policy, Pruning


def prune(
    context: typer.Context,
    node: Annotated[list[str] | None, typer.Option("--node", "-n", help="Only these nodes; again for more.")] = None,
    keep: Annotated[int, typer.Option(min=0, help="Newest releases of each service that stay, running or not.")] = 3,
    free: Annotated[
        float | None,
        typer.Option(callback=in_range, metavar="GIB", help="Remove only until so much of Docker's disk is free."),
    ] = None,
    build_cache: Annotated[
        float | None,
        typer.Option(callback=in_range, metavar="GIB", help="Let BuildKit keep at most so much; else it keeps all."),
    ] = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would go, and what stays and why.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: WAIT = 0.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Remove containers, images and caches of old releases. Active, previous, running and new ones stay."""
    from sparkops.fleet import prune as pruning
    from sparkops.plan.prune import Policy, plan

    settings: Settings = context.obj
    policy = Policy(keep, _bytes(free), _bytes(build_cache))
    done: Mapping[str, Pruned] = {}
    with _order(settings.fleet(), node or (), wait) as (order, nodes):
        seen = pruning.look(order.connected, nodes)
        shown = plan(seen.nodes, seen.intended, policy)
        if not json:
            _show(seen, shown, policy, why=dry_run)
        if shown.removals and not dry_run and confirm(_question(shown), yes=yes):
            done = pruning.prune(order, seen, policy, shown)
    for name, each in done.items():
        say(f"{name}: {len(each.removed)} removed, {_gib(each.before)} were free, {_gib(each.after)} are", fg="green")
    if json:
        data_json(_as_json(seen, shown, done))
    _raise_where_wrong(seen, policy, done)


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * GIB)


def _gib(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / GIB:.2f} GiB"


@contextmanager
def _order(fleet: Fleet, named: tuple[str, ...] | list[str], wait_s: float) -> Iterator[tuple[Order, list[str]]]:
    """Connections to the nodes and to the gateway's, whose guard knows most; and the nodes."""
    from sparkops.fleet.connected import connect
    from sparkops.fleet.planning import Order

    nodes = list(named or fleet.nodes)
    gateway = [fleet.gateway.node] if fleet.gateway else []
    with connect(fleet, list(dict.fromkeys([*nodes, *gateway]))) as connected, progress() as tell:
        yield Order(connected, keep_of("prune"), tell, wait_s, "prune"), nodes


def _question(shown: Pruning) -> str:
    size = sum(each.size for each in shown.removals)
    return f"Remove {len(shown.removals)} things, about {_gib(size)}?"


def _show(seen: Seen, shown: Pruning, policy: Policy, *, why: bool) -> None:
    for node in seen.nodes:
        due = [each for each in shown.removals if each.node == node.node]
        total = f"about {_gib(sum(each.size for each in due))}" if due else "nothing"
        data(f"{node.node}: {total} to remove, {_gib(node.free)} free")
        for each in due:
            data(f"  - {each.kind:<12} {each.size / GIB:>8.2f} GiB  {each.name}")
        if policy.cache is None and node.cache_shared and any(each.kind == "image" for each in due):
            held = f"BuildKit holds {_gib(node.cache_shared)} of images, too"
            say(f"  {node.node}: {held}: only --build-cache frees that")
        for kept in (each for each in shown.kept if why and each.node == node.node):
            data(f"    {kept.kind:<12} {'stays':>12}  {kept.name}: {kept.why}")


def _as_json(seen: Seen, shown: Pruning, done: Mapping[str, Pruned]) -> dict[str, object]:
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


def _raise_where_wrong(seen: Seen, policy: Policy, done: Mapping[str, Pruned]) -> None:
    """What could not be read, and where there is still too little room."""
    wrong: list[SparkopsError] = list(seen.problems)
    for name, each in done.items():
        if policy.free is not None and each.after is not None and each.after < policy.free:
            step = "Name a smaller --keep; --build-cache frees what BuildKit shares with images that are gone."
            wrong.append(NodeError(name, f"{_gib(each.after)} are free, not {_gib(policy.free)}", next_step=step))
    if wrong:
        raise wrong[0] if len(wrong) == 1 else NodesFailed(wrong)
