"""The verbs prune and node uninstall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from sparkops.command import Command
from sparkops.config.inventory import Fleet
from sparkops.names import counted
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import DRY_RUN, JSON, NODES, WAIT, WITHOUT, YES
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import confirm, data, data_json, say
from sparkops.operator.deploy.prune.run import Pruning, prepare, remove
from sparkops.operator.deploy.prune.uninstall import Extent, Uninstall
from sparkops.operator.deploy.prune.uninstalling import Target, prepare_uninstall, run
from sparkops.operator.fleet.connected import connect
from sparkops.units import shown_size


def prune(
    context: typer.Context,
    node: NODES = None,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    yes: YES = False,
    json: JSON = False,
) -> None:
    """Remove unused containers, images and caches

    Keeps what a journal names (active, previous and new releases), what runs, and images of the last day. Removes
    nothing while a guard does not answer, or a journal cannot be read. Without a terminal it needs --yes. --dry-run
    also lists the images that stay.

    BuildKit's cache keeps layers of removed images; `docker builder prune` on the node frees them.

    Example: sparkops prune --dry-run
    """
    fleet = load_fleet(context.obj)
    nodes = list(node or fleet.nodes)
    gateway = [fleet.gateway.node] if fleet.gateway else []  # its guard has the journals
    pruned: Mapping[str, Pruning] = {}
    with connect(fleet, list(dict.fromkeys([*nodes, *gateway]))) as connected, progress() as report:
        planned = prepare(connected, nodes)
        count = sum(len(pruning.removals) for pruning in planned.values())
        if not json:
            _show(planned, images=dry_run)
        if count and not dry_run and confirm(f"Remove {counted(count, 'item')}?", yes=yes):
            pruned = remove(connected, report, planned, wait)
    for name, result in pruned.items():
        free = f"{_gib(result.free)} free ({_gib(planned[name].free)} before)"
        say(f"{name}: {len(result.removals)} removed, {free}", fg="green")
    if json:
        data_json({"nodes": {name: _as_json(pruning, pruned.get(name)) for name, pruning in planned.items()}})


def _gib(size: int | None) -> str:
    return "an unknown amount" if size is None else shown_size(size)


def _show(planned: Mapping[str, Pruning], *, images: bool) -> None:
    """Print the removals, and with `images` what stays of sparkops besides."""
    for name, pruning in planned.items():
        data(f"{name}: {len(pruning.removals) or 'nothing'} to remove, {_gib(pruning.free)} free")
        for removal in pruning.removals:
            data(f"  - {removal}")
        for image in pruning.images if images else ():
            data(f"  stays: {image}")


def _as_json(planned: Pruning, pruned: Pruning | None) -> dict[str, object]:
    return {
        "free_bytes": planned.free,
        "free_bytes_after": pruned.free if pruned else None,
        "remove": _removals(planned.removals, pruned.removals if pruned else ()),
        "images": list(planned.images),
    }


def _removals(planned: tuple[Command, ...], removed: tuple[Command, ...]) -> list[dict[str, object]]:
    return [{"command": str(removal), "removed": removal in removed} for removal in planned]


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

    Example: sparkops node uninstall spark-2 --dry-run
    """
    fleet = load_fleet(context.obj)
    for name in (node, *(without or ())):
        fleet.node(name)
    removed: tuple[Command, ...] = ()
    with connect(fleet, (), required=False) as connected, progress() as report:
        for name, error in connected.unreachable.items():
            if name != node:
                say(f"skipping {name}: {error}", fg="yellow")
        target = Target(connected, node, Extent(weights, build_cache), frozenset(without or ()))
        planned = prepare_uninstall(target)
        if not json:
            data(str(planned))
        of_models = f", {shown_size(planned.weights)} of them model files," if planned.weights else ""
        question = f"Remove {counted(len(planned.removals), 'item')}{of_models} from {planned.node}?"
        if (planned.removals or planned.leader) and not dry_run and confirm(question, yes=yes):
            removed = run(target, planned, report, wait)
            say(f"{node}: {len(removed)} removed", fg="green")
            say(f"  next: {_left(fleet, node)}, or the next deploy installs a guard there again", bold=True)
    if json:
        data_json(_uninstall_json(planned, removed))


def _uninstall_json(planned: Uninstall, removed: tuple[Command, ...]) -> dict[str, object]:
    return {
        "node": planned.node,
        "dismissed_by": planned.leader or None,
        "remove": _removals(planned.removals, removed),
        "keep": [{"name": kept.name, "why": kept.why} for kept in planned.kept],
        "consequences": list(planned.consequences),
    }


def _left(fleet: Fleet, node: str) -> str:
    """Return what to change in the inventory after the uninstall of a node."""
    if len(fleet.nodes) == 1:
        return f"Remove {fleet.file}"
    gateway = " and set gateway.node to another" if fleet.gateway and fleet.gateway.node == node else ""
    return f"Remove {node} from {fleet.file}{gateway}"
