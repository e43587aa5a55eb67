"""The output of `status` and its exit code."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib import import_module

import typer

from sparkops.config import addresses
from sparkops.errors import NeedsOperator, SparkopsError, UsageError
from sparkops.node.node import GatewayPlace
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.terminal import data_json, say, visible
from sparkops.operator.status.join import GATEWAY_DOWN, GUARD_DOWN, GUARD_SILENT, INVENTORY, NEEDS_PERSON, join
from sparkops.operator.status.observation import reported
from sparkops.operator.status.picture import Status
from sparkops.operator.status.read import Reader
from sparkops.operator.status.view import STRONG, Line, lines

Outcomes = Mapping[str, str | SparkopsError]
"""By node: the program's output, or the error that prevented it."""


def show(settings: Settings, reader: Reader, outcomes: Outcomes, service: str | None, *, json: bool) -> None:  # noqa: ARG001 - as in watch
    """Print a status once, of all services or one.

    Raises ConfigError for an inventory that is wrong, UsageError, and Exit for another exit code than 0.
    """
    joined = joined_status(*places(settings), outcomes, service)
    if json:
        data_json(asdict(joined))
        for row in joined.nodes:
            if not row.reachable:
                say(f"{row.name}: {row.error}", fg="red")
    else:
        for line in lines(joined, whole=service is not None):
            typer.echo(styled(line))
    codes = {drift.code for drift in joined.drift}
    if codes & {NEEDS_PERSON, GUARD_DOWN, GATEWAY_DOWN}:
        raise typer.Exit(NeedsOperator.exit_code)
    if codes & {GUARD_SILENT, *INVENTORY} or not all(row.reachable for row in joined.nodes):
        raise typer.Exit(1)


def places(settings: Settings) -> tuple[list[str], GatewayPlace | None]:
    """Return the names of the nodes, and the gateway, of an inventory that was checked now or at an earlier call.

    Raises ConfigError, UsageError.
    """
    known = addresses.read(settings.inventory)
    if known and addresses.is_checked(known.text):
        return list(known.nodes), known.gateway
    fleet = import_module("sparkops.operator.cli.named").load_fleet(settings)  # imports pydantic
    if known:
        addresses.note_checked(known.text)
    return list(fleet.nodes), fleet.gateway


def joined_status(
    names: Sequence[str], gateway: GatewayPlace | None, outcomes: Outcomes, service: str | None = None
) -> Status:
    """Return the status of a fleet from what was read of its nodes, of all services or one.

    Raises UsageError for an unknown service.
    """
    reports = {name: reported(name, outcome) for name, outcome in outcomes.items()}
    joined = join(names, reports, gateway)
    return joined if service is None else of_service(joined, service)


def of_service(status: Status, service: str) -> Status:
    """Return a status without the other services. Raises UsageError for an unknown one."""
    known = [row.name for row in status.services]
    if service not in known:
        unread = [row.name for row in status.nodes if not row.reachable]
        problem = f"no such service: {service}" + (f"; not read: {', '.join(unread)}" if unread else "")
        near = difflib.get_close_matches(service, known, n=3)
        step = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(problem, next_step=f"{step}`sparkops status` lists all.")
    return replace(
        status,
        services=[row for row in status.services if row.name == service],
        findings=[finding for finding in status.findings if finding.service == service],
        drift=[row for row in status.drift if row.service in ("", service)],
    )


def styled(line: Line) -> str:
    """Return a line with the colours of its cells; typer.echo removes them if stdout is no terminal."""
    cells = ((visible(text), color) for text, color in line)
    return "".join(
        typer.style(text, bold=True) if color == STRONG else typer.style(text, fg=color) if color else text
        for text, color in cells
    )
