"""The option --version: this client, and what of its fleet is newer."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import typer

from sparkops import __version__
from sparkops.cli.terminal import say, visible
from sparkops.config import addresses, files, inventory
from sparkops.errors import SparkopsError
from sparkops.guard_client.newer import VERSION, newer
from sparkops.nodes.connect import Connector
from sparkops.nodes.node import Routes

MOST_S = 2.0
"""Seconds for all nodes together."""


def show(file: Path) -> None:
    """Print the version; on a terminal also what of the inventory's fleet is newer and answers in time."""
    typer.echo(f"sparkops {__version__}")
    if not sys.stdout.isatty():  # a script wants one line, and no connection
        return
    lines = list[str]()
    with suppress(SparkopsError, OSError):
        text = files.text(file, errors="replace")
        lines += newer(__version__, text, {})
        fleet = addresses.read(file) or inventory.load(file)
        lines += newer(__version__, "", _guards(fleet, list(fleet.nodes)))
    for line in lines:
        say(visible(line), fg="yellow")
    if lines:
        say("  next: update this client, for example with pip install --upgrade sparkops", bold=True)


def _guards(fleet: Routes, names: Sequence[str]) -> dict[str, str]:
    """Return the versions of the guards that answer within MOST_S; the threads of the others end with the program."""
    connector = Connector(fleet, patience_s=0.0, timeout_s=MOST_S)
    versions: dict[str, str] = {}
    threads = [threading.Thread(target=_read, args=(connector, name, versions), daemon=True) for name in names]
    end_s = time.monotonic() + MOST_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    connector.cancel.set()
    return {name: versions[name] for name in names if name in versions}


def _read(connector: Connector, name: str, versions: dict[str, str]) -> None:
    """Add the version of a node's guard. A node that cannot be read is no reason for an error here."""
    with suppress(SparkopsError, OSError, ValueError):
        node = connector.node(name)
        versions[name] = node.run(VERSION).stdout
