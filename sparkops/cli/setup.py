"""init, trust, schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sparkops.cli.settings import Settings
from sparkops.cli.terminal import confirm, data, say, write
from sparkops.errors import ConfigError, UsageError

FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
EXAMPLE = """\
# The nodes of your fleet. Every key: docs/inventory.md, or `sparkops schema inventory`.
known_hosts: known_hosts        # written by `sparkops trust`
defaults:
  user: {user}
  model_dir: /srv/models        # one directory for each model, on each node
  gpu: runtime                  # runtime (DGX OS) | cdi | devices | none
nodes:
"""


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(init)
    app.command()(trust)
    app.command()(schema)


def init(
    context: typer.Context,
    addresses: Annotated[
        list[str] | None, typer.Argument(help="Addresses of your nodes; none for this machine.")
    ] = None,
    user: Annotated[str, typer.Option(help="SSH user on the nodes.")] = "",
) -> None:
    """Write a first inventory. An existing one is never overwritten."""
    import getpass

    settings: Settings = context.obj
    if settings.inventory.exists():
        raise UsageError(
            f"{settings.inventory} is there already", next_step="Edit it, or name another with --inventory."
        )
    text = EXAMPLE.format(user=user or getpass.getuser())
    for number, address in enumerate(addresses or (), 1):
        text += f"  spark-{number}: {{address: {address}}}\n"
    if not addresses:
        text += "  here: {transport: local}    # this machine's own Docker, without SSH\n"
    write(settings.inventory, text)
    try:
        settings.fleet()
    except ConfigError:  # an address that is none
        settings.inventory.unlink()
        raise
    say(f"wrote {settings.inventory}")
    say("  next: sparkops trust" if addresses else "  next: sparkops status", bold=True)


def trust(
    context: typer.Context,
    nodes: Annotated[list[str] | None, typer.Argument(help="Nodes; all if none is named.")] = None,
    fingerprint: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE=SHA256:...", help="Pin without asking if NODE shows this (repeatable)."),
    ] = None,
    replace: Annotated[bool, typer.Option(help="Pin a new key in place of another one.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Show each node's host key and pin it beside the inventory.

    With --fingerprint and no NODE, only the nodes of the fingerprints.
    """
    from sparkops.nodes.connect import Connector
    from sparkops.nodes.host_keys import fingerprint as shown_as

    settings: Settings = context.obj
    fleet = settings.fleet()
    connector = Connector(fleet)
    expected = _fingerprints(fingerprint or ())
    every = [name for name, node in fleet.nodes.items() if node.transport == "ssh"]
    for name in dict.fromkeys([*(nodes or ()), *expected]) or every:
        key, pins = connector.host_key(name), connector.pins(name)
        if pins.check(key, expected.get(name, ""), replace=replace):
            say(f"{name}: {shown_as(key)} is trusted already")
            continue
        question = f"{name}: {key.get_name()} {shown_as(key)}. Trust it?"
        if not confirm(question, yes=yes or name in expected):
            raise typer.Exit(2)
        pins.write(key)
        say(f"{name}: pinned in {fleet.known_hosts}")


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


def schema(
    of: Annotated[str, typer.Argument(help="recipe, inventory or status.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="A reference to read instead, as in docs/.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to a file.")] = None,
) -> None:
    """Print the JSON Schema of a recipe, an inventory, or what `status --json` prints."""
    import json

    from pydantic import BaseModel

    from sparkops.config.inventory import Inventory
    from sparkops.config.recipe import Recipe
    from sparkops.plan.picture import Status
    from sparkops.render.reference import reference

    models: dict[str, type[BaseModel]] = {"recipe": Recipe, "inventory": Inventory, "status": Status}
    if of not in models:
        raise UsageError(f"there is no schema of {of}", next_step=f"One of: {', '.join(models)}")
    made = reference(models[of]) if markdown else json.dumps(models[of].model_json_schema(), indent=2) + "\n"
    if output:
        write(output, made)
    else:
        data(made.removesuffix("\n"))
