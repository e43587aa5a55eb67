"""Messages and progress on stderr, data on stdout: without credentials of URLs, safe for a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sparkops.errors import UsageError
from sparkops.redact import redacted

if TYPE_CHECKING:
    from sparkops.fleet.progress import Event, Tell


COLOR = re.compile(r"\x1b\[[0-9;]*m")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that command a terminal or reorder text, and lone surrogates. Tab and newline are none."""


def visible(text: str) -> str:
    """Return a text for a terminal: without credentials of URLs and colors, control characters as \\x1b or \\u202e.

    Remote output, foreign recipes and errors that quote them could otherwise move the cursor or hide a line.
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), COLOR.sub("", redacted(text)))


def say(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    """A message."""
    color = False if os.environ.get("NO_COLOR") else None
    typer.secho(visible(text), fg=fg, bold=bold, err=True, color=color)


def show_commands() -> Callable[[], None]:
    """Print every command that runs on a node, on stderr. Returns a function that ends it."""
    import logging

    from sparkops.nodes.trace import COMMANDS

    class Printing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage(), fg="bright_black")

    printing = Printing()
    COMMANDS.addHandler(printing)
    COMMANDS.setLevel(logging.DEBUG)

    def end() -> None:
        COMMANDS.setLevel(logging.NOTSET)
        COMMANDS.removeHandler(printing)

    return end


def data(text: str) -> None:
    """Print data: with its control characters into a pipe, without them on a terminal."""
    typer.echo(visible(text) if sys.stdout.isatty() else redacted(text))


def data_json(value: Any) -> None:
    """One JSON object."""
    typer.echo(json.dumps(_redacted(value), indent=2))


def _redacted(value: Any) -> Any:
    """Before it is JSON, whose quotes and escapes could stand in a password's way."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {_redacted(key): _redacted(child) for key, child in value.items()}
        case list() | tuple():
            return [_redacted(child) for child in value]
        case _:
            return value


def write(file: Path, text: str) -> None:
    """Write a file that the operator named, with its directory. Raises UsageError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def confirm(question: str, *, yes: bool) -> bool:
    """Ask on a terminal. Without one nobody can answer: `--yes` must have said it."""
    if yes:
        return True
    if not sys.stdin.isatty():
        say(f"{question} Nobody is there to answer: give --yes.", fg="yellow")
        return False
    return typer.confirm(visible(question), err=True)


@contextmanager
def progress() -> Iterator[Tell]:
    """Show events as they come: a live line for each node on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        with _live() as tell:
            yield lambda event: tell(replace(event, text=visible(event.text)))
    else:
        began = time.monotonic()
        yield lambda event: _plain(event, time.monotonic() - began)


def _plain(event: Event, at_s: float) -> None:
    if event.lasting:
        say(f"[{at_s:4.0f} s] {event.node}: {event.text}{_count(event)}")


def _count(event: Event) -> str:
    return f" ({event.done}/{event.total} steps done)" if event.total else ""


@contextmanager
def _live() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

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

        def tell(event: Event) -> None:
            if event.node not in tasks:
                tasks[event.node] = shown.add_task("", node=event.node)
            shown.update(tasks[event.node], description=event.text + _count(event))
            if event.lasting:
                at_s = time.monotonic() - began
                shown.console.print(f"[{at_s:4.0f} s] {event.node}: {event.text}", markup=False, highlight=False)

        yield tell
