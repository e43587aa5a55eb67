"""The output of `status` and its exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module

import typer

from sparkops.config import addresses
from sparkops.errors import NeedsOperator, SparkopsError
from sparkops.node.node import GatewayPlace
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.terminal import data_json, say, visible
from sparkops.operator.status.join import GUARD_DOWN, GUARD_SILENT, NEEDS_PERSON, join
from sparkops.operator.status.observation import reported
from sparkops.operator.status.picture import Status
from sparkops.operator.status.read import Reader
from sparkops.operator.status.view import STRONG, Line, lines

Outcomes = Mapping[str, str | SparkopsError]
"""By node: the program's output, or the error that prevented it."""


def show(settings: Settings, reader: Reader, outcomes: Outcomes, *, json: bool) -> None:  # noqa: ARG001 - as in watch
    """Print a status once. Raises ConfigError for an inventory that is wrong, Exit for another exit code than 0."""
    joined = joined_status(*places(settings), outcomes)
    if json:
        data_json(asdict(joined))
        for row in joined.nodes:
            if not row.reachable:
                say(f"{row.name}: {row.error}", fg="red")
    else:
        for line in lines(joined):
            typer.echo(styled(line))
    codes = {drift.code for drift in joined.drift}
    if codes & {NEEDS_PERSON, GUARD_DOWN}:
        raise typer.Exit(NeedsOperator.exit_code)
    if GUARD_SILENT in codes or not all(row.reachable for row in joined.nodes):
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


def joined_status(names: Sequence[str], gateway: GatewayPlace | None, outcomes: Outcomes) -> Status:
    """Return the status of a fleet from what was read of its nodes."""
    reports = {name: reported(name, outcome) for name, outcome in outcomes.items()}
    return join(names, reports, gateway)


def styled(line: Line) -> str:
    """Return a line with the colours of its cells; typer.echo removes them if stdout is no terminal."""
    cells = ((visible(text), color) for text, color in line)
    return "".join(
        typer.style(text, bold=True) if color == STRONG else typer.style(text, fg=color) if color else text
        for text, color in cells
    )
