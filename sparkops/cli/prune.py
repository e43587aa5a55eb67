"""The verbs prune and uninstall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from sparkops.cli.named import load_fleet
from sparkops.cli.options import DRY_RUN, JSON, NODES, WAIT, WITHOUT, YES, gib, in_range, whole
from sparkops.cli.progress import progress
from sparkops.cli.terminal import confirm, data, data_json, say
from sparkops.errors import NodeError, SparkopsError, joined
from sparkops.nodes.connected import connect
from sparkops.nodes.host import GIB
from sparkops.prune.plan import Policy, Pruning, Removal, plan
from sparkops.prune.run import DiskSurvey, Pruned, read_nodes, remove
from sparkops.prune.uninstall import Extent, Uninstall
from sparkops.prune.uninstalling import Target, prepare, run


def prune(
    context: typer.Context,
    node: NODES = None,
    keep: Annotated[
        int, typer.Option(parser=whole(0), metavar="NUMBER", help="Number of newest releases to keep for each service")
    ] = 3,
    free: Annotated[
        float | None,
        typer.Option(parser=gib, callback=in_range, metavar="GIB", help="Stop when this much of Docker's disk is free"),
    ] = None,
    build_cache: Annotated[
        float | None,
        typer.Option(
            parser=gib, callback=in_range, metavar="GIB", help="Shrink BuildKit's cache to this size; default: keep all"
        ),
    ] = None,
    wait: WAIT = 0.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed or kept, and why")] = False,
    yes: YES = False,
    json: JSON = False,
) -> None:
    """Remove unused containers, images and caches

    Keeps those of active, previous, running and new releases.

    Example: sparkops prune --keep 2 --dry-run
    """
    fleet = load_fleet(context.obj)
    policy = Policy(keep, _bytes(free), _bytes(build_cache))
    nodes = list(node or fleet.nodes)
    gateway = [fleet.gateway.node] if fleet.gateway else []  # its guard has the journals
    pruned: Mapping[str, Pruned] = {}
    with connect(fleet, list(dict.fromkeys([*nodes, *gateway]))) as connected, progress() as report:
        survey = read_nodes(connected, nodes)
        pruning = plan(survey.nodes, survey.intended, policy)
        if not json:
            _show(survey, pruning, policy, why=dry_run)
        size = sum(removal.size for removal in pruning.removals)
        question = f"Remove {len(pruning.removals)} items (about {_gib(size)})?"
        if pruning.removals and not dry_run and confirm(question, yes=yes):
            pruned = remove(connected, report, survey, policy, pruning, wait)
    for name, result in pruned.items():
        free_after = f"{_gib(result.after)} free ({_gib(result.before)} before)"
        say(f"{name}: {len(result.removed)} removed, {free_after}", fg="green")
    if json:
        data_json(_as_json(survey, pruning, pruned))
    _raise_problems(survey, policy, pruned)


def _bytes(gib: float | None) -> int | None:
    return None if gib is None else int(gib * GIB)


def _gib(size: int | None) -> str:
    return "an unknown amount" if size is None else f"{size / GIB:.2f} GiB"


def _show(survey: DiskSurvey, pruning: Pruning, policy: Policy, *, why: bool) -> None:
    for node in survey.nodes:
        due = [removal for removal in pruning.removals if removal.node == node.node]
        total = f"about {_gib(sum(removal.size for removal in due))}" if due else "nothing"
        data(f"{node.node}: {total} to remove, {_gib(node.free)} free")
        for removal in due:
            data(f"  - {removal.kind:<12} {removal.size / GIB:>8.2f} GiB  {removal.name}")
        if policy.cache is None and node.cache_shared and any(removal.kind == "image" for removal in due):
            shared = f"BuildKit also holds {_gib(node.cache_shared)} of these images"
            say(f"  {node.node}: {shared}; only --build-cache frees them")
        for kept in (kept for kept in pruning.kept if why and kept.node == node.node):
            data(f"    {kept.kind:<12} {'stays':>12}  {kept.name}: {kept.why}")


def _as_json(survey: DiskSurvey, pruning: Pruning, pruned: Mapping[str, Pruned]) -> dict[str, object]:
    removed = {removal.key for result in pruned.values() for removal in result.removed}
    nodes = {
        node.node: {
            "free_bytes": node.free,
            "free_bytes_after": pruned[node.node].after if node.node in pruned else None,
            "remove": [
                {"kind": e.kind, "name": e.name, "bytes": e.size, "service": e.service, "removed": e.key in removed}
                for e in pruning.removals
                if e.node == node.node
            ],
            "keep": [{"kind": e.kind, "name": e.name, "why": e.why} for e in pruning.kept if e.node == node.node],
        }
        for node in survey.nodes
    }
    return {"nodes": nodes}


def _raise_problems(survey: DiskSurvey, policy: Policy, pruned: Mapping[str, Pruned]) -> None:
    """Raise the unreadable journals, and the nodes with too little free space."""
    problems: list[SparkopsError] = list(survey.problems)
    for name, result in pruned.items():
        if policy.free is not None and result.after is not None and result.after < policy.free:
            step = "Lower --keep, or pass --build-cache: BuildKit's cache keeps data of removed images."
            problem = f"{_gib(result.after)} free, expected {_gib(policy.free)}"
            problems.append(NodeError(name, problem, next_step=step))
    if problems:
        raise joined(problems)


def uninstall(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Node of the inventory")],
    weights: Annotated[bool, typer.Option("--weights", help="Also remove the model files that sparkops wrote")] = False,
    build_cache: Annotated[
        bool, typer.Option("--build-cache", help="Also remove BuildKit's cache and records of builds")
    ] = False,
    without: WITHOUT = None,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    yes: YES = False,
    json: JSON = False,
) -> None:
    """Remove everything of sparkops from a node

    Removes containers, images, volumes, files and firewall rules. Model files stay without --weights; with it, those
    on a file system that another node shares stay. Refuses a node that serves, or whose guard leads a service that was
    not stopped.

    Example: sparkops uninstall spark-2 --dry-run
    """
    fleet = load_fleet(context.obj)
    for name in (node, *(without or ())):
        fleet.node(name)
    removed: tuple[Removal, ...] = ()
    with connect(fleet, (), required=False) as connected, progress() as report:
        for name, error in connected.unreachable.items():
            if name != node:
                say(f"skipping {name}: {error}", fg="yellow")
        target = Target(connected, node, Extent(weights, build_cache), frozenset(without or ()))
        planned = prepare(target)
        if not json:
            data(str(planned))
        of_models = f", {planned.weights / GIB:.2f} GiB of them model files," if planned.weights else ""
        question = f"Remove {len(planned.removals)} items{of_models} from {planned.node}?"
        if (planned.removals or planned.leader) and not dry_run and confirm(question, yes=yes):
            removed = run(target, planned, report, wait)
            say(f"{node}: {len(removed)} removed", fg="green")
            say(f"next: remove {node} from {fleet.file}, or the next deploy installs a guard there again")
    if json:
        data_json(_uninstall_json(planned, removed))


def _uninstall_json(planned: Uninstall, removed: tuple[Removal, ...]) -> dict[str, object]:
    keys = {removal.key for removal in removed}
    return {
        "node": planned.node,
        "dismissed_by": planned.leader or None,
        "remove": [
            {
                "kind": removal.kind,
                "name": removal.name,
                "bytes": removal.size,
                "command": str(removal.command),
                "removed": removal.key in keys,
            }
            for removal in planned.removals
        ],
        "keep": [{"kind": kept.kind, "name": kept.name, "why": kept.why} for kept in planned.kept],
        "consequences": list(planned.consequences),
    }
