"""The verbs gateway move and rebuild."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import typer

from sparkops.config import source
from sparkops.config.inventory import Fleet
from sparkops.errors import UsageError
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import DRY_RUN, JSON, WAIT, WITHOUT, in_range, seconds
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.deploy import move
from sparkops.operator.deploy.agents import agents
from sparkops.operator.deploy.agents.move_plan import Move
from sparkops.operator.deploy.agents.rebuild import needs_operator, read_copies, rebuild_on
from sparkops.operator.deploy.agents.rebuild_plan import Rebuild, listed, plan
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.fleet.connected import connect
from sparkops.swap import trouble

KEEP_S = 60.0
"""Seconds for clients to change to the new address."""
PATIENCE_S = 5.0  # to connect: a lost node does not answer


def move_(
    context: typer.Context,
    node: Annotated[str, typer.Argument(metavar="NODE", help="New node of the gateway and the leader")],
    keep: Annotated[
        float,
        typer.Option(
            "--keep",
            parser=seconds,
            callback=in_range,
            show_default=False,
            metavar="TIME",
            help="Keep the old gateway for TIME (90s, 10m); default: 60",
        ),
    ] = KEEP_S,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Move gateway and leader to NODE while the old ones answer

    No engine stops, no request fails: the old gateway answers until TIME after the new one does, then takes no new
    requests and finishes the open ones. Clients need the new address, not new keys. Continues when run again after an
    interruption. `gateway rebuild` is for a lost node.

    Exit code 5 if refused and nothing changed, 4 while a service changes, 7 if a service does not serve through the new
    gateway; the old one then stays.

    Example: sparkops gateway move spark-2 --dry-run
    """
    before = load_fleet(context.obj)
    fleet = before.moved(node)
    with connect(fleet, required=False) as connected, progress() as report:
        connected.member(node)
        for name, error in connected.unreachable.items():
            say(f"skipping {name}: {error}", fg="yellow")
        operation = Operation(connected, report, wait)
        planned = operation.until_free(lambda: move.read(operation, keep))
        (data if dry_run and not json else say)(str(planned))
        if not planned.ended:
            specs = agents.load(fleet, planned.rebuild.services)
            move.require_keys(operation, planned, specs)
            if not dry_run:
                move.move(operation, planned, specs)
    if json:
        data_json(_moved_json(before, fleet, planned, dry_run=dry_run))
    if not dry_run:
        for service in planned.rebuild.services:
            say(f"{service.name}: {fleet.require_gateway().url(service.port)}", fg="green")
    for step in _further(before, fleet):
        say(f"  next: {step}", bold=True)


def _further(before: Fleet, fleet: Fleet) -> Iterator[str]:
    """Yield what an operator has to change besides: the inventory, and the address that clients use."""
    old, new = before.require_gateway(), fleet.require_gateway()
    if old.node == new.node:
        return
    file, line = source.read(before.file).place(("gateway", "node"))
    yield f"Set `gateway.node: {new.node}` in {file}, line {line}, on every machine that has this inventory."
    if old.address == new.address:
        yield f"Let {new.address}, the address of clients, lead to {fleet.node(new.node).address}."
    else:
        yield f"Let clients call {new.address} in place of {old.address}; their keys stay."


def _moved_json(before: Fleet, fleet: Fleet, planned: Move, *, dry_run: bool) -> dict[str, object]:
    services = [
        {
            "name": service.name,
            "url": fleet.require_gateway().url(service.port),
            "was": before.require_gateway().url(service.port),
        }
        for service in planned.rebuild.services
    ]
    return {
        "node": planned.node,
        "from": planned.leader or None,
        "closed": list(planned.closing),
        "result": "nothing" if planned.ended else "moved",
        "dry_run": dry_run,
        "services": services,
    }


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
        raise needs_operator(failing)
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
        error = fleet.fail(("gateway", "node"), f"{named}, expected {node}")
        error.next_step = (
            f"Set `gateway.node: {node}` there: each client finds the new gateway by it. Then run this again."
        )
        raise error


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
