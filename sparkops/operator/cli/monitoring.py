"""The verb monitoring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparkops.operator.build.gateway.files import load_monitoring_key
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.terminal import say, write
from sparkops.operator.status.monitoring import PROMETHEUS, files


def monitoring(
    context: typer.Context,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Directory for the files")],
) -> None:
    """Write files for Prometheus and Grafana

    Scrape configuration, alert rules and a dashboard for all nodes, services and the gateway. Reads only the inventory:
    with its section `monitoring`, guards and gateway serve figures to clients with the key.

    Example: sparkops monitoring -o prometheus
    """
    fleet = load_fleet(context.obj)
    load_monitoring_key(fleet)  # Prometheus would only report that it is refused
    for name, text in files(fleet).items():
        write(output / name, text)
        say(f"wrote {output / name}")
    if fleet.monitoring is None:
        say("no `monitoring` in the inventory: only the gateway is scraped, by a Prometheus on its node", fg="yellow")
        say("  next: add `monitoring: {key: FILE}`, deploy with --apply-gateway, and write the files again", bold=True)
    say(f"  next: prometheus --config.file={output / PROMETHEUS}", bold=True)
