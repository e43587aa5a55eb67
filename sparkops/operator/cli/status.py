"""The verb status: reads the nodes while the modules that show them are imported."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from typing import Annotated

import typer

from sparkops.config import addresses
from sparkops.errors import UsageError
from sparkops.names import did_you_mean
from sparkops.operator.cli.options import JSON, Settings
from sparkops.operator.status.clients import CLIENTS
from sparkops.operator.status.read import Reader


def status(
    context: typer.Context,
    service: Annotated[
        str | None, typer.Argument(metavar="SERVICE", help="Service, in detail; default: all of them")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Follow the swap or stop of SERVICE until it ends")] = False,
    json: JSON = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Show GPUs too, as with --watch")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every 2 s on the terminal until Ctrl-C")] = False,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar="NAME", help=f"Show how a client calls the services: {', '.join(CLIENTS)}"),
    ] = None,
) -> None:
    """Show nodes, services and releases

    With SERVICE, also its stopped containers and its last events. What this machine cannot read is shown as the fleet
    reports it, else as unknown.

    With --client, print a configuration with URL, model and length of the context instead. It names the file of an API
    key, and never contains the key; with --json, print these facts for any other client.

    With --follow, print the progress of a swap or stop instead. Ctrl-C ends the following; the swap continues.

    Exit code 1 if a node or its guard cannot be read or the inventory contradicts the fleet, 7 if a service, or a
    stopped guard or gateway needs an operator; with --follow that of the swap or stop, 130 after Ctrl-C. `sparkops
    recipe schema status` describes the JSON.

    Example: sparkops status --watch
    """
    if watch and (json or not sys.stdout.isatty()):
        step = "Run `sparkops status --json` instead."
        raise UsageError("--watch: stdout is not a terminal", next_step=step)
    settings: Settings = context.obj
    if follow:
        _follow(settings, service, json=json, other=watch or gpu or client is not None)
        return
    if client is not None:
        _show_client(settings, client, service, json=json, other=watch or gpu)
        return
    with closing(fleet_reader(settings, gpus=gpu or watch)) as reader, ThreadPoolExecutor(1) as importing:
        module = importing.submit(import_module, f"sparkops.operator.cli.{'watch' if watch else 'status_output'}")
        outcomes = reader.read()
        module.result().show(settings, reader, outcomes, service, json=json)


def _follow(settings: Settings, service: str | None, *, json: bool, other: bool) -> None:
    """Follow the swap or stop of a service. Raises UsageError without a service, and with `other` options."""
    if service is None:
        raise UsageError("--follow: SERVICE is missing", next_step="sparkops status SERVICE --follow")
    if other:
        problem = "--follow: does not go with --watch, --gpu and --client"
        raise UsageError(problem, next_step=f"sparkops status {service} --follow")
    import_module("sparkops.operator.cli.intents").follow(settings, service, json=json)


def _show_client(settings: Settings, client: str, service: str | None, *, json: bool, other: bool) -> None:
    """Print the configuration of a client. Raises UsageError for the name of none, and with `other` options."""
    if client not in CLIENTS:
        near = did_you_mean(client, CLIENTS).strip()
        raise UsageError(f"--client: unknown client {client}, expected one of: {', '.join(CLIENTS)}", next_step=near)
    if other:
        raise UsageError("--client: does not go with --watch and --gpu", next_step=f"sparkops status --client {client}")
    module = import_module("sparkops.operator.cli.clients")  # imports what reads an engine
    fleet = import_module("sparkops.operator.cli.named").load_fleet(settings)
    with closing(Reader(fleet, fleet.nodes)) as reader:
        module.show_client(fleet, reader, reader.read(), client, service, json=json)


def fleet_reader(settings: Settings, *, gpus: bool) -> Reader:
    """Return the reader of the inventory's nodes. The file is checked before anything is shown."""
    fleet = addresses.read(settings.inventory) or import_module("sparkops.operator.cli.named").load_fleet(settings)
    return Reader(fleet, fleet.nodes, gpus)
