"""The verb node trust."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from sparkops.errors import SparkopsError, UsageError, joined
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import YES
from sparkops.operator.cli.terminal import confirm, say
from sparkops.operator.fleet.connect import Connector
from sparkops.operator.fleet.host_keys import fingerprint_of

FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


def trust(
    context: typer.Context,
    nodes: Annotated[list[str] | None, typer.Argument(metavar="NODE", help="Nodes; default: all")] = None,
    fingerprint: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE=SHA256:...", help="Pin without asking if NODE shows this (repeatable)"),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a pinned key that has changed")] = False,
    yes: YES = False,
) -> None:
    """Pin the nodes' SSH host keys

    Prints each key and asks before pinning it beside the inventory. With --fingerprint and no NODE, pins only the
    nodes of the fingerprints.

    Exit code 2 if a confirmation is denied, 5 if another key is pinned.

    Example: sparkops node trust spark-2
    """
    fleet = load_fleet(context.obj)
    connector = Connector(fleet)
    expected = _fingerprints(fingerprint or ())
    every = [name for name, node in fleet.nodes.items() if node.transport == "ssh"]
    named = list(dict.fromkeys([*(nodes or ()), *expected])) or every
    for name in named:
        fleet.node(name)
    errors: list[SparkopsError] = []
    for name in named:
        try:
            if not pin(connector, name, expected.get(name, ""), replace=replace, yes=yes):
                raise typer.Exit(2)
        except SparkopsError as error:  # the other nodes can be pinned
            errors.append(error)
    if errors:
        raise joined(errors)


def pin(connector: Connector, name: str, expected: str = "", *, replace: bool = False, yes: bool) -> bool:
    """Pin the key that a node shows, after a question unless it is `expected`. Return whether it is trusted now.

    Raises NotReachable, HostKeyRefused.
    """
    key, pins = connector.host_key(name), connector.pins(name)
    if pins.check(key, expected, replace=replace):
        say(f"{name}: {fingerprint_of(key)} is already pinned")
        return True
    if not confirm(f"{name}: {key.get_name()} {fingerprint_of(key)}. Trust it?", yes=yes or bool(expected)):
        return False
    pins.write(key)
    say(f"{name}: pinned in {pins.file}")
    return True


def _fingerprints(given: Sequence[str]) -> dict[str, str]:
    """Return the expected fingerprint of each named node. Raises UsageError for one that is malformed."""
    expected: dict[str, str] = {}
    for text in given:
        name, _, value = text.partition("=")
        if not name or not FINGERPRINT.fullmatch(value):
            form = "NODE=SHA256: and 43 characters of base64, as ssh-keygen -l prints them"
            raise UsageError(f"--fingerprint: expected {form}, got {text!r}")
        if expected.setdefault(name, value) != value:
            raise UsageError(f"--fingerprint: {name} has two: {expected[name]} and {value}")
    return expected
