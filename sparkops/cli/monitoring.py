"""The verbs events and monitoring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparkops.cli.named import load_fleet
from sparkops.cli.terminal import data, data_line, say, write
from sparkops.errors import SparkopsError, UsageError, joined
from sparkops.gateway.files import load_monitoring_key
from sparkops.guard_client import notices
from sparkops.guard_client.notices import NoticeReader, Page
from sparkops.guard_client.replies import is_unknown_request
from sparkops.monitoring import PROMETHEUS, files
from sparkops.nodes.connected import Connected, connect
from sparkops.notices import message

POLL_S = 2.0
"""Longest wait of one request with --follow."""
LINES = typer.Option("--json", help="Print one JSON object a line")


def events(
    context: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow events until Ctrl-C")] = False,
    test: Annotated[bool, typer.Option("--test", help="Send a test event to the webhook from every node")] = False,
    json: Annotated[bool, LINES] = False,
) -> None:
    """Show what an operator must know

    Promotions, reverts, findings, lost nodes and more, of all services and nodes, oldest first: the same events that
    the webhook of the inventory receives. `sparkops history SERVICE` has every step of a service.

    Exit code 1 if a test does not arrive.

    Example: sparkops events --follow --json
    """
    if test and (follow or json):
        raise UsageError("--test: not with --follow or --json")
    fleet = load_fleet(context.obj)
    if test and fleet.webhook is None:
        step = "Add `webhook: {urls: [URL], key: FILE}` to the inventory, and deploy; docs/monitoring.md has the rest."
        raise UsageError(f"{fleet.file}: webhook: not found, expected the receivers of events", next_step=step)
    with connect(fleet, required=False) as connected:
        if not (connected.members or test):
            raise joined([*connected.unreachable.values()])
        for name, error in connected.unreachable.items():
            say(f"skipping {name}: {error}", fg="yellow")
        if test:
            _test(connected)
            return
        with notices.reading(connected) as reader:
            _show(reader, follow=follow, json=json)


def _show(reader: NoticeReader, *, follow: bool, json: bool) -> None:
    for name in sorted(set(reader.connected.members) - set(reader.guards)):
        say(f"{name}: no guard runs there", fg="yellow")
    page, said = reader.read(), dict[str, str]()
    _print(page, json=json)
    _complain(page, said)
    if not (follow or page.messages or page.unread or reader.connected.unreachable):
        say("no events")
    while follow:
        page = reader.read(POLL_S)
        _print(page, json=json)
        _complain(page, said)


def _print(page: Page, *, json: bool) -> None:
    for item in page.messages:
        data_line(item) if json else data(message.shown(item))


def _complain(page: Page, said: dict[str, str]) -> None:
    """Say once what fails: a receiver, or a node that is not read."""
    failing = {f"{node}: {name}": why for node, items in page.failing.items() for name, why in items.items()}
    problems = {f"{where}: events wait": why for where, why in failing.items()}
    for node, error in page.unread.items():
        problems[f"{node}: not read"] = _reason(error)
    for where, why in problems.items():
        if said.get(where) != why:
            say(f"{where}: {why}", fg="yellow")
    said.clear()
    said.update(problems)


def _reason(error: SparkopsError) -> str:
    return (
        "its guard is of an earlier version; the next deploy replaces it" if is_unknown_request(error) else str(error)
    )


def _test(connected: Connected) -> None:
    """Print each result; exit with 1 unless all arrived."""
    outcomes, failed = notices.test(connected), False
    for node, outcome in outcomes.items():
        if isinstance(outcome, SparkopsError):
            say(f"{node}: not tested: {_reason(outcome)}", fg="red")
            failed = True
            continue
        if not outcome:
            say(f"{node}: no webhook yet", fg="yellow")
            say("  next: sparkops deploy RECIPE applies the inventory", bold=True)
            failed = True
        for item in outcome:
            data(f"{node}: {item['receiver']}: {item['problem'] or 'delivered'}")
            failed |= bool(item["problem"])
    if failed or not outcomes or connected.unreachable:
        raise typer.Exit(1)


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
        say("  next: add `monitoring: {key: FILE}`, deploy, and write the files again", bold=True)
    say(f"  next: prometheus --config.file={output / PROMETHEUS}; docs/monitoring.md has the rest", bold=True)
