"""Progress of long work on stderr: a live line for each node on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from sparkops.node.progress import Event, OnEvent
from sparkops.operator.cli.terminal import say, visible


@contextmanager
def progress() -> Iterator[OnEvent]:
    """Show events as they come: a live line for each node on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        with _live() as report:
            yield lambda event: report(replace(event, text=visible(event.text)))
    else:
        began = time.monotonic()
        yield lambda event: _plain(event, time.monotonic() - began)


def _plain(event: Event, at_s: float) -> None:
    if event.lasting:
        say(f"[{at_s:4.0f} s] {event.node}: {event.text}{_count(event)}")


def _count(event: Event) -> str:
    return f" ({event.completed}/{event.total} steps done)" if event.total else ""


@contextmanager
def _live() -> Iterator[OnEvent]:
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.fields[node]}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        tasks: dict[str, Any] = {}
        began = time.monotonic()

        def report(event: Event) -> None:
            if event.node not in tasks:
                tasks[event.node] = shown.add_task("", node=event.node)
            shown.update(tasks[event.node], description=event.text + _count(event))
            if event.lasting:
                at_s = time.monotonic() - began
                shown.console.print(f"[{at_s:4.0f} s] {event.node}: {event.text}", markup=False, highlight=False)

        yield report
