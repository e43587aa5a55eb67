"""The verbs models list and models verify: the models on the nodes, and whether they are complete."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from sparkops.cli.inventory import load_fleet
from sparkops.cli.named import load_recipe
from sparkops.cli.options import JSON, NODES, RECIPE
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, say
from sparkops.config.recipe import Recipe
from sparkops.docker.commands import model_dir
from sparkops.errors import NodeError, SparkopsError, joined
from sparkops.nodes.connected import connect
from sparkops.weights import models
from sparkops.weights.checkpoint import Checkpoint, ModelDirectory, overlooked, problems
from sparkops.weights.plan import in_words
from sparkops.weights.steps import remedy


def list_(context: typer.Context, node: NODES = None, json: JSON = False) -> None:
    """List models and their state

    Prints the size of each directory under model_dir, and what is missing or wrong.

    Example: sparkops models list --node spark-1
    """
    settings: Settings = context.obj
    fleet = load_fleet(settings)
    with connect(fleet, node or (), required=False) as connected:
        seen = {**connected.unreachable, **connected.on_each(models.look)}
    errors = {name: each for name, each in seen.items() if isinstance(each, SparkopsError)}
    found = {name: each for name, each in seen.items() if not isinstance(each, SparkopsError)}
    if json:
        told = {name: _as_json(each) for name, each in found.items()}
        data_json({"nodes": {**told, **{name: {"error": str(each)} for name, each in errors.items()}}})
    for name, each in () if json else found.items():
        where = model_dir(fleet.nodes[name])
        data(f"{name:<16} {where}" + (f", {each.free / 1e9:.1f} GB free" if each.exists else " not found"))
        for checkpoint in each.checkpoints.values():
            data(f"  {checkpoint.path:<44} {checkpoint.size / 1e9:>8.2f} GB  {_state(checkpoint)}")
    if errors:
        raise joined(list(errors.values()))


def _state(found: Checkpoint) -> str:
    reasons, extra = in_words(problems(found)), overlooked(found)
    said = reasons or "complete" + (f", revision {found.commit[:12]}" if found.commit else "")
    return said + (f" (not in the index, not read: {', '.join(extra)})" if extra else "")


def _as_json(found: ModelDirectory) -> dict[str, object]:
    models = [
        {
            "path": each.path,
            "bytes": each.size,
            "complete": each.complete,
            "problems": list(problems(each)),
            "model": each.origin.model if each.origin else None,
            "revision": each.commit,
        }
        for each in found.checkpoints.values()
    ]
    return {"there": found.exists, "writable": found.writable, "free_bytes": found.free, "models": models}


def verify(context: typer.Context, recipe: RECIPE, node: NODES = None, json: JSON = False) -> None:
    """Check weights against the recipe

    Checks names, sizes, headers, index and revision on every node that has them.

    Exit code 1 if weights are missing or wrong.

    Example: sparkops models verify 122b-autoround
    """
    settings: Settings = context.obj
    fleet = load_fleet(settings)
    wanted = load_recipe(recipe, fleet)
    named = node or wanted.nodes
    with connect(fleet, named) as connected:
        said = models.verify(connected, wanted, everywhere=bool(named))
    if json:
        nodes = {name: {"complete": not why, "problem": why or None} for name, why in said.items()}
        data_json({"path": wanted.model.path, "nodes": nodes})
    for name in (name for name, why in said.items() if not why):
        say(f"{name}: {wanted.model.path} is complete", fg="green")
    _raise_where_wrong(wanted, said, list(connected.members))


def _raise_where_wrong(recipe: Recipe, said: dict[str, str], nodes: Sequence[str]) -> None:
    if not said:
        step = remedy(recipe, nodes[0])
        raise NodeError(", ".join(nodes), f"{recipe.model.path} not found on any of these nodes", next_step=step)
    wrong = [
        NodeError(name, f"{recipe.model.path}: {why}", next_step=remedy(recipe, name))
        for name, why in said.items()
        if why
    ]
    if wrong:
        raise joined(wrong)
