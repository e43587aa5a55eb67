"""Progress of long work on stderr: a live line for each node on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from sparkops.node.progress import Event, OnEvent
from sparkops.operator.cli.terminal import say, shown_live, visible


@contextmanager
def progress() -> Iterator[OnEvent]:
    """Show events as they come: a live line for each node on a terminal, plain lines elsewhere.

    An event without text removes the live line of its node.
    """
    began_s = _began_s()
    if sys.stderr.isatty():
        with _live(began_s) as report:
            yield lambda event: report(replace(event, text=visible(event.text)))
    else:
        yield lambda event: _plain(event, time.monotonic() - began_s)


@cache
def _began_s() -> float:
    """Return the start of the first progress of this process: the clock of its lines never goes back."""
    return time.monotonic()


def _plain(event: Event, at_s: float) -> None:
    if event.lasting:
        say(f"[{at_s:4.0f} s] {event.node}: {event.text}{_count(event)}")


def _count(event: Event) -> str:
    return f" ({event.completed}/{event.total} steps done)" if event.total else ""


@contextmanager
def _live(began_s: float) -> Iterator[OnEvent]:
    console = Console(stderr=True)
    whole = Column(no_wrap=True)  # the text alone is cut on a narrow terminal
    columns = (
        SpinnerColumn(table_column=whole.copy()),
        TextColumn("[bold]{task.fields[node]}", table_column=whole.copy()),
        TimeElapsedColumn(table_column=whole.copy()),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as shown, shown_live(shown.stop, shown.start):
        tasks: dict[str, Any] = {}

        def report(event: Event) -> None:
            if not event.text:
                if event.node in tasks:
                    shown.remove_task(tasks.pop(event.node))
                return
            if event.node not in tasks:
                tasks[event.node] = shown.add_task("", node=event.node)
            shown.update(tasks[event.node], description=event.text + _count(event))
            if event.lasting:
                at_s = time.monotonic() - began_s
                shown.console.print(f"[{at_s:4.0f} s] {event.node}: {event.text}", markup=False, highlight=False)

        yield report
