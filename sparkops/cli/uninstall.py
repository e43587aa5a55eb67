"""The verb uninstall."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkops.cli.named import load_fleet
from sparkops.cli.options import DRY_RUN, JSON, WAIT, WITHOUT, YES
from sparkops.cli.progress import progress
from sparkops.cli.terminal import confirm, data, data_json, say
from sparkops.nodes.connected import connect
from sparkops.nodes.host import GIB
from sparkops.prune.plan import Removal
from sparkops.prune.uninstall import Extent, Uninstall
from sparkops.prune.uninstalling import Target, prepare, run


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

    Removes containers, images, volumes, files and firewall rules. Model files stay without --weights. Refuses a node
    that serves, or whose guard leads a service that was not stopped.

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
        if (planned.removals or planned.leader) and not dry_run and confirm(_question(planned), yes=yes):
            removed = run(target, planned, report, wait)
            say(f"{node}: {len(removed)} removed", fg="green")
            say(f"next: remove {node} from {fleet.file}, or the next deploy installs a guard there again")
    if json:
        data_json(_as_json(planned, removed))


def _question(planned: Uninstall) -> str:
    weights = f", {planned.weights / GIB:.2f} GiB of them model files," if planned.weights else ""
    return f"Remove {len(planned.removals)} items{weights} from {planned.node}?"


def _as_json(planned: Uninstall, removed: tuple[Removal, ...]) -> dict[str, object]:
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
