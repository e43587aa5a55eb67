"""Messages on stderr, data on stdout: without credentials of URLs, safe for a terminal."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import typer

from sparkops.errors import UsageError
from sparkops.foreign import escaped
from sparkops.node.node import COMMANDS
from sparkops.redact import redacted

COLOR = re.compile(r"\x1b\[[0-9;]*m")


def visible(text: str) -> str:
    """Return a text for a terminal: without credentials of URLs and colors, control characters as \\x1b or \\u202e.

    Remote output, foreign recipes and errors that quote them could otherwise move the cursor or hide a line.
    """
    return escaped(COLOR.sub("", redacted(text)))


_live: list[tuple[Callable[[], None], Callable[[], None]]] = []
"""How to remove and to draw each live display; the last one is on the terminal."""


@contextmanager
def shown_live(remove: Callable[[], None], draw: Callable[[], None]) -> Iterator[None]:
    """Register a live display, so that messages and data are printed above its lines."""
    _live.append((remove, draw))
    try:
        yield
    finally:
        _live.pop()


@contextmanager
def _above() -> Iterator[None]:
    """Remove the live display while something else is printed."""
    if not _live:
        yield
        return
    remove, draw = _live[-1]
    remove()
    try:
        yield
    finally:
        draw()


def say(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    """Print a message on stderr."""
    color = False if os.environ.get("NO_COLOR") else None
    with _above():
        typer.secho(visible(text), fg=fg, bold=bold, err=True, color=color)


def show_commands() -> Callable[[], None]:
    """Print every command that runs on a node, on stderr. Returns a function that ends it."""

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
    """Print data on stdout: with control characters into a pipe, without them on a terminal."""
    with _above():
        typer.echo(visible(text) if sys.stdout.isatty() else redacted(text))


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns, of which the last one is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip() for row in rows]


def is_narrow(columns: int) -> bool:
    """Return whether stdout is a terminal with fewer columns."""
    return sys.stdout.isatty() and shutil.get_terminal_size().columns < columns


def fitted(lines: Sequence[str]) -> Sequence[str]:
    """Return lines cut to the width of the terminal; whole ones where stdout is none, such as a pipe."""
    if not sys.stdout.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    return [line if len(line) <= width else f"{line[: width - 3]}..." for line in lines]


PRINTED: list[object] = []
"""The JSON objects that this call has printed: an error prints none beside them."""


def folded(text: str) -> str:
    """Return a text whose lines end between words on the terminal; unchanged where stdout is none, such as a pipe."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join("\n".join(_folded(line, width)) or line for line in text.splitlines())


def _folded(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(line, max(width, 20), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def data_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    PRINTED.append(value)
    with _above():
        typer.echo(json.dumps(without_credentials(value), indent=2))


def without_credentials(value: Any) -> Any:
    """Return a value without credentials, before it becomes JSON, whose escapes could hide one from the pattern."""
    match value:
        case str():
            return redacted(value)
        case dict():
            return {without_credentials(key): without_credentials(child) for key, child in value.items()}
        case list() | tuple():
            return [without_credentials(child) for child in value]
        case _:
            return value


def write(file: Path, text: str) -> None:
    """Write a file that the operator named, with its directory: all of it, or none. Raises UsageError."""
    target = file.resolve()  # a link to it stays
    new = target.with_name(f".{target.name}.new")
    try:
        if target.exists() and not target.is_file():  # such as /dev/stdout
            target.write_text(text)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text)
        if target.exists():
            shutil.copymode(target, new)
        new.replace(target)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None


def confirm(question: str, *, yes: bool) -> bool:
    """Ask for confirmation on a terminal. Without a terminal only `yes` confirms: it raises UsageError."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"no terminal to confirm on: {question}", next_step="Pass --yes.")
    with _above():
        return typer.confirm(visible(question), err=True)
