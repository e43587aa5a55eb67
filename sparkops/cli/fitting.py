"""fit, and the memory section of `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, say
from sparkops.errors import SparkopsError

if TYPE_CHECKING:
    from sparkops.config.recipe import Recipe
    from sparkops.fleet.connected import Connected
    from sparkops.memory.fit import Fit


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(fit)


def fit(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="Recipe file or name.")],
    node: Annotated[
        list[str] | None, typer.Option("--node", "-n", metavar="NODE", help="Limit to NODE (repeatable).")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the recipe (repeatable)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Predict a recipe's memory and check it against the nodes.

    Reads config.json and safetensors headers on each node, or the recipe's lock. Starts nothing. Exit code 1 if the
    recipe does not fit, 5 if its memory is unknown.
    """
    from sparkops.fleet import fitting
    from sparkops.fleet.connected import connect
    from sparkops.fleet.parallel import all_or_raise
    from sparkops.memory.fit import lower
    from sparkops.memory.report import as_json

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet, set_ or ())
    with connect(fleet, node or wanted.nodes) as connected:
        outcomes = fitting.fits(connected, wanted)
    known = {name: made for name, made in outcomes.items() if not isinstance(made, SparkopsError)}
    if json:
        data_json({"recipe": wanted.name, "nodes": [as_json(made) for made in known.values()]})
    elif known:
        data(text(known))
    all_or_raise(outcomes)
    refused = [made for made in known.values() if made.problems]
    for step in dict.fromkeys(lower(made, wanted.name) for made in refused):
        say(f"  next: {step}", bold=True)
    if refused:
        raise typer.Exit(1)


def text(known: Mapping[str, Fit]) -> str:
    """Return the fits of all nodes for people."""
    from sparkops.memory.report import lines

    return "\n".join(line for made in known.values() for line in lines(made))


def section(connected: Connected, recipe: Recipe, nodes: Sequence[str]) -> str:
    """Return the memory section that follows a plan; empty for an engine that reads no model.

    A plan is not refused because its memory is unknown: `memory.claim_gib` decides there.
    """
    from sparkops.config.engine import ENGINES
    from sparkops.fleet import fitting
    from sparkops.memory.report import lines

    if not ENGINES[recipe.engine].weights:
        return ""
    members = {name: member for name, member in connected.members.items() if name in nodes}
    try:
        outcomes = fitting.fits(replace(connected, members=members), recipe)
    except SparkopsError as error:
        return f"\nmemory, predicted:\n  {error}"
    told = [_unknown(made) if isinstance(made, SparkopsError) else list(lines(made)) for made in outcomes.values()]
    return "\n".join(["", "memory, predicted:", *(f"  {line}" for part in told for line in part)])


def _unknown(error: SparkopsError) -> list[str]:
    return [*str(error).splitlines(), *(f"  next: {line}" for line in error.next_step.splitlines())]
