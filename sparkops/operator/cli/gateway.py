"""The verb gateway rebuild."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from sparkops.config.inventory import Fleet
from sparkops.errors import NeedsOperator, UsageError
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import DRY_RUN, JSON, WITHOUT
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.deploy.agents import agents
from sparkops.operator.deploy.agents.rebuild import read_copies, rebuild_on
from sparkops.operator.deploy.agents.rebuild_plan import Rebuild, listed, plan
from sparkops.operator.fleet.connected import connect
from sparkops.swap import trouble

PATIENCE_S = 5.0  # to connect: a lost node does not answer


def rebuild(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="New node of the gateway and the leader")],
    without: WITHOUT = None,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Rebuild gateway and leader on NODE after their node is lost

    Restores the journals from the guards that reply. First set `gateway.node: NODE` in the inventory.

    Exit code 5 if a guard still follows the old leader.

    Example: sparkops gateway rebuild spark-2 --without spark-1 --dry-run
    """
    fleet = load_fleet(context.obj)
    _require_named(fleet, node, without or ())
    with connect(fleet, required=False, patience_s=PATIENCE_S) as connected, progress() as report:
        connected.member(node)
        for name, error in connected.unreachable.items():
            say(f"skipping {name}: {error}", fg="yellow")
        planned = plan(node, read_copies(connected), frozenset(without or ()))
        (data if dry_run and not json else say)(str(planned))
        failing: Mapping[str, str] = {}
        if not dry_run:
            failing = rebuild_on(connected, planned, agents.load(fleet, planned.services), report)
    if json:
        data_json(_as_json(planned, failing, dry_run=dry_run))
    if failing:
        problem = "\n".join(f"{service}: {trouble.reason(why)}" for service, why in failing.items())
        steps = dict.fromkeys(step for why in failing.values() for step in why.partition(trouble.NEXT)[2].splitlines())
        raise NeedsOperator(problem, next_step="\n".join(steps))
    if not dry_run and fleet.gateway:
        for service in planned.services:
            say(f"{service.name}: {fleet.gateway.url(service.port)}", fg="green")


def _require_named(fleet: Fleet, node: str, without: Sequence[str]) -> None:
    """Raise ConfigError unless the inventory names the node, so that every client finds the new gateway."""
    for name in (node, *without):
        fleet.node(name)
    if node in without:
        raise UsageError(f"--without {node}: the gateway moves there")
    if fleet.gateway is None or fleet.gateway.node != node:
        named = fleet.gateway.node if fleet.gateway else "not set"
        raise fleet.fail(("gateway", "node"), f"{named}, expected {node}")


def _as_json(planned: Rebuild, failing: Mapping[str, str], *, dry_run: bool) -> dict[str, object]:
    services = [
        {
            "name": journal.service,
            "term": journal.term,
            "revision": journal.revision,
            "release": journal.active.release if journal.active else None,
            "problem": trouble.reason(failing[journal.service]) if journal.service in failing else None,
        }
        for journal in listed((*planned.journals, *planned.kept))
    ]
    return {"node": planned.node, "without": sorted(planned.lost), "dry_run": dry_run, "services": services}
