"""The verbs promote, rollback, restart, stop, hold and history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from sparkops.config.inventory import Fleet
from sparkops.errors import UsageError
from sparkops.operator.cli.intents import (
    Options,
    leader_of,
    leading_guard,
    plan_options,
    print_nothing,
    send,
    send_stop,
)
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import (
    ALLOW_DOWNTIME,
    DETACH,
    DRY_RUN,
    JSON,
    MAINTENANCE,
    SERVICE,
    WAIT,
    WITHOUT,
    YES,
)
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.deploy import preview, sending
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.guards.following import Accepted
from sparkops.operator.fleet.guards.leader import Leader
from sparkops.operator.fleet.guards.replies import lines, notable, notable_line


def promote(
    context: typer.Context, service: SERVICE, wait: WAIT = 0.0, detach: DETACH = False, json: JSON = False
) -> None:
    """Keep a release deployed with --no-promote

    Exit codes as for deploy.

    Example: sparkops promote qwen3.5-122b
    """
    options = Options(wait_s=wait, detach=detach, json=json)
    fleet = load_fleet(context.obj)
    send(fleet, service, lambda at, leader: at.until_free(lambda: sending.promote(leader, service)), options)


def rollback(
    context: typer.Context,
    service: SERVICE,
    to: Annotated[
        str, typer.Option("--to", metavar="RELEASE", help="Return to RELEASE; default: the previous one")
    ] = "",
    allow_downtime: ALLOW_DOWNTIME = False,
    without: WITHOUT = None,
    wait: WAIT = 0.0,
    detach: DETACH = False,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """End an unfinished swap, or return to the previous release

    The old release of an unfinished swap serves on. Otherwise the traffic returns to the previous release, at once
    while it is warm; else it starts again. A release that the last rollback has left returns only by --to.

    Exit code 0 when the earlier release serves, else as for deploy.

    Example: sparkops rollback qwen3.5-122b
    """
    fleet = load_fleet(context.obj)
    choices = plan_options(fleet, without=without, allow_downtime=allow_downtime)
    if dry_run:
        _show_rollback(fleet, service, choices, to, json=json)
        return
    options = Options(wait_s=wait, detach=detach, json=json)

    def accept(operation: Operation, leader: Leader) -> Accepted | None:
        accepted = sending.rollback(operation, leader, service, choices, to)
        if accepted is None and leader.state(service).journal.active is None:
            say(f"{service} is stopped, without an earlier release\n  next: sparkops restart {service}")
        return accepted

    send(fleet, service, accept, options, back=True)


def _show_rollback(fleet: Fleet, service: str, choices: DeployOptions, to: str, *, json: bool) -> None:
    """Print what a rollback would return to, and what would run."""
    with leader_of(fleet, service) as (operation, leader):
        planned = sending.preview_rollback(operation, leader, service, choices, to)
        if planned is None:
            active = leader.state(service).journal.active
            print_nothing(service, active.release if active else "", json=json)
            return
    way, effects = planned
    if json:
        listed = preview.as_json(effects, service) if effects else []
        data_json({**way.as_json(), "effects": listed})
    else:
        data("\n".join([str(way), *(preview.lines(effects, service) if effects else ())]))


def restart(
    context: typer.Context,
    service: SERVICE,
    allow_downtime: ALLOW_DOWNTIME = False,
    wait: WAIT = 0.0,
    detach: DETACH = False,
    json: JSON = False,
) -> None:
    """Start a stopped service, or its release anew

    After `stop`, the release that served last starts again. While a release serves, a new start of it replaces it by a
    swap as of a deploy: without downtime where both fit, else with --allow-downtime.

    Exit codes as for deploy.

    Example: sparkops restart qwen3.5-122b
    """
    fleet = load_fleet(context.obj)
    choices = plan_options(fleet, allow_downtime=allow_downtime)
    options = Options(wait_s=wait, detach=detach, json=json)
    send(fleet, service, lambda at, leader: sending.restart(at, leader, service, choices), options)


def stop(
    context: typer.Context,
    service: SERVICE,
    forget: Annotated[
        bool, typer.Option("--forget", help="Free its names and port too, and list it no longer")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Stop it in the middle of a swap, too")] = False,
    yes: YES = False,
    wait: WAIT = 0.0,
    detach: DETACH = False,
    json: JSON = False,
) -> None:
    """Stop a service

    Open requests finish first; containers and logs stay. The gateway keeps the names and the port
    of a stopped service; with --forget, other services may take them. Asks on a terminal; a script needs no --yes.

    Exit code 4 if another change is in progress, 7 if an operator is needed.

    Example: sparkops stop qwen3.5-122b
    """
    fleet = load_fleet(context.obj)
    if forget and detach:
        step = f"sparkops stop {service} --detach, and --forget once all of it has stopped"
        raise UsageError("--forget: not with --detach: only a service that has stopped is forgotten", next_step=step)
    send_stop(fleet, service, Options(wait_s=wait, detach=detach, json=json), forget=forget, force=force, yes=yes)


def hold(
    context: typer.Context,
    service: SERVICE,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="TEXT", help="Reason, shown when a command is blocked")
    ] = MAINTENANCE,
    off: Annotated[bool, typer.Option("--off", help="End the hold")] = False,
) -> None:
    """Block changes to a service

    A swap that has not switched the traffic yet is reverted. A command that is blocked prints the reason, who holds the
    service and since when.

    Example: sparkops hold qwen3.5-122b --message "benchmark until 18:00"
    """
    fleet = load_fleet(context.obj)
    if off and message != MAINTENANCE:
        raise UsageError("--message: not with --off", next_step=f"sparkops hold {service} --off")
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    reason = f"{message.strip() or MAINTENANCE}, by {leases.operator()} since {since}"
    with leader_of(fleet, service) as (_, leader):
        changed = sending.hold(leader, service, "" if off else reason)
        swap = leader.state(service).swap
    if swap and swap.reverting and not off:
        say(f"{service}: the swap to {swap.target.release} is reverted\n  next: sparkops status {service} --follow")
    if off:
        say(f"{service}: hold ended" if changed else f"{service}: nothing was held", fg="green")
    else:
        say(f"{service} is on hold: {reason}", fg="green")


def history(
    context: typer.Context,
    service: Annotated[str | None, typer.Argument(metavar="SERVICE", help="Service; default: all of them")] = None,
    json: JSON = False,
) -> None:
    """Show past events

    Oldest first. Of a service: intents, phases, failures and their reasons. Of all: what an operator must know, such
    as promotions, reverts, restarts and findings.

    Example: sparkops history qwen3.5-122b
    """
    fleet = load_fleet(context.obj)
    if service is None:
        with leading_guard(fleet, 0.0) as (operation, leader):
            events = notable(sending.histories(operation, leader, leader.services()))
    else:
        with leader_of(fleet, service) as (operation, leader):
            events = sending.histories(operation, leader, (service,))[service]
    if json:
        data_json({"service": service, "events": events})
    for event in () if json else events:
        data("\n".join(lines(event)) if service else notable_line(event))
    if not events:
        say(f"{service}: no events" if service else "no events")
