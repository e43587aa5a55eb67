"""`status --watch`: a status that refreshes in place."""

from __future__ import annotations

import time

from rich.console import Console
from rich.live import Live
from rich.style import Style
from rich.text import Text

from sparkops.errors import Interrupted
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.status_output import Outcomes, joined_status, places
from sparkops.operator.cli.terminal import visible
from sparkops.operator.status.picture import Status
from sparkops.operator.status.read import Reader
from sparkops.operator.status.view import FAINT, STRONG, Line, lines

PAUSE_S = 2.0
"""Seconds between two readings."""


def show(settings: Settings, reader: Reader, outcomes: Outcomes, service: str | None, *, json: bool) -> None:  # noqa: ARG001 - as in shown
    """Show a status until Ctrl-C, which is no error. Raises ConfigError for a wrong inventory, UsageError."""
    console, (names, gateway) = Console(), places(settings)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        try:
            while True:
                joined = joined_status(names, gateway, outcomes, service)
                live.update(_screen(joined, console.width, whole=service is not None), refresh=True)
                time.sleep(PAUSE_S)
                outcomes = reader.read()
        except (KeyboardInterrupt, Interrupted):
            return


def _screen(status: Status, width: int, *, whole: bool) -> Text:
    foot = f"{time.strftime('%H:%M:%S')}  every {PAUSE_S:g} s, Ctrl-C to quit"
    return Text("\n").join(map(_text, (*lines(status, width, whole=whole), (), ((foot, FAINT),))))


def _text(line: Line) -> Text:
    styles = (Style(bold=True) if color == STRONG else Style(color=color or None) for _, color in line)
    return Text.assemble(*((visible(text), style) for (text, _), style in zip(line, styles, strict=True)))
