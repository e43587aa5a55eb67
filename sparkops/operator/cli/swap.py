"""The verbs promote, rollback, cancel, stop, hold, unhold and history."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkops.config.inventory import Fleet
from sparkops.errors import UsageError
from sparkops.operator.cli.intents import Options, leader_of, leading_guard, plan_options, send, send_stop
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import ALLOW_DOWNTIME, DETACH, JSON, SERVICE, WAIT, WITHOUT
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.deploy import sending
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
    allow_downtime: ALLOW_DOWNTIME = False,
    without: WITHOUT = None,
    wait: WAIT = 0.0,
    detach: DETACH = False,
    json: JSON = False,
) -> None:
    """Return to the previous release

    Cancels an unfinished swap, switches to a release that is still warm, or deploys the previous one.

    Exit code 0 when the previous release serves, else as for deploy.

    Example: sparkops rollback qwen3.5-122b
    """
    fleet = load_fleet(context.obj)
    options = Options(wait_s=wait, detach=detach, json=json)
    choices = plan_options(fleet, without=without, allow_downtime=allow_downtime)
    send(fleet, service, lambda at, leader: sending.rollback(at, leader, service, choices), options, back=True)


def cancel(
    context: typer.Context, service: SERVICE, wait: WAIT = 0.0, detach: DETACH = False, json: JSON = False
) -> None:
    """Cancel an unfinished swap

    Exit code 0 when the old release serves, else as for deploy.

    Example: sparkops rollback qwen3.5-122b
    """
    options = Options(wait_s=wait, detach=detach, json=json)
    fleet = load_fleet(context.obj)
    send(fleet, service, lambda at, leader: at.until_free(lambda: sending.cancel(leader, service)), options, back=True)


def stop(
    context: typer.Context,
    service: SERVICE,
    forget: Annotated[
        bool, typer.Option("--forget", help="Free its names and port too, and list it no longer")
    ] = False,
    wait: WAIT = 0.0,
    detach: DETACH = False,
    json: JSON = False,
) -> None:
    """Stop a service

    Open requests finish first; containers and logs stay. The gateway keeps the names and the port
    of a stopped service; with --forget, other services may take them.

    Exit code 4 if another change is in progress, 7 if an operator is needed.

    Example: sparkops stop qwen3.5-122b
    """
    fleet = load_fleet(context.obj)
    if forget and detach:
        step = f"sparkops stop {service} --detach, and --forget once all of it has stopped"
        raise UsageError("--forget: not with --detach: only a service that has stopped is forgotten", next_step=step)
    send_stop(fleet, service, Options(wait_s=wait, detach=detach, json=json), forget=forget)


def hold(
    context: typer.Context,
    service: SERVICE,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="TEXT", help="Reason, shown when a command is blocked")
    ],
) -> None:
    """Block changes to a service

    A swap that has not switched the traffic yet is reverted.

    Example: sparkops hold qwen3.5-122b --message "benchmark until 18:00"
    """
    if not message.strip():
        raise UsageError("--message: empty, expected a reason")
    _hold(load_fleet(context.obj), service, message)
    say(f"{service} is on hold: {message}")


def unhold(context: typer.Context, service: SERVICE) -> None:
    """Remove a hold

    Example: sparkops hold qwen3.5-122b --off
    """
    _hold(load_fleet(context.obj), service, "")
    say(f"{service}: hold released")


def _hold(fleet: Fleet, service: str, reason: str) -> None:
    with leader_of(fleet, service) as (_, leader):
        sending.hold(leader, service, reason)


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
