"""The verb fit, and the memory section of `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import typer

from sparkops.cli.named import load_fleet, load_recipe
from sparkops.cli.options import JSON, NODES, RECIPE, SET
from sparkops.cli.terminal import data, data_json, say
from sparkops.config.recipe import Recipe
from sparkops.deploy import fitting
from sparkops.engines import ENGINES
from sparkops.errors import SparkopsError
from sparkops.memory.fit import Fit, lower
from sparkops.memory.report import as_json, lines
from sparkops.nodes.connected import Connected, connect
from sparkops.nodes.parallel import all_or_raise


def fit(context: typer.Context, recipe: RECIPE, node: NODES = None, set_: SET = None, json: JSON = False) -> None:
    """Predict a recipe's memory use on its nodes

    Reads config.json and safetensors headers on each node, or the recipe's lock. Starts nothing. Exit code 1 if the
    recipe does not fit, 5 if its memory is unknown.

    Example: sparkops fit 122b-autoround --node spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet, set_ or ())
    with connect(fleet, node or loaded.nodes) as connected:
        outcomes = fitting.fits(connected, loaded)
    known = [outcome for outcome in outcomes.values() if isinstance(outcome, Fit)]
    if json:
        data_json({"recipe": loaded.name, "nodes": list(map(as_json, known))})
    elif known:
        data("\n".join(line for outcome in known for line in lines(outcome)))
    all_or_raise(outcomes)
    too_large = [outcome for outcome in known if outcome.problems]
    for step in dict.fromkeys(lower(outcome, loaded.name) for outcome in too_large):
        say(f"  next: {step}", bold=True)
    if too_large:
        raise typer.Exit(1)


def section(connected: Connected, recipe: Recipe, nodes: Sequence[str]) -> str:
    """Return the memory section that follows a plan; empty for an engine that reads no model.

    Unknown memory does not refuse a plan: it uses `memory.claim_gib`.
    """
    if not ENGINES[recipe.engine].weights:
        return ""
    members = {name: member for name, member in connected.members.items() if name in nodes}
    try:
        outcomes = fitting.fits(replace(connected, members=members), recipe)
    except SparkopsError as error:
        return f"\nmemory, predicted:\n  {error}"
    text = ["", "memory, predicted:"]
    for outcome in outcomes.values():
        text += (f"  {line}" for line in (lines(outcome) if isinstance(outcome, Fit) else _unknown(outcome)))
    return "\n".join(text)


def _unknown(error: SparkopsError) -> list[str]:
    return [*str(error).splitlines(), *(f"  next: {line}" for line in error.next_step.splitlines())]
