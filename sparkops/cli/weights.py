"""The verbs models list and models verify: the models on the nodes, and whether they are complete."""

from __future__ import annotations

import typer

from sparkops.cli.named import load_fleet, load_recipe
from sparkops.cli.options import JSON, NODES, RECIPE
from sparkops.cli.terminal import data, data_json, say
from sparkops.docker.commands import model_dir
from sparkops.errors import NodeError, SparkopsError, joined
from sparkops.nodes.connected import connect
from sparkops.weights import models
from sparkops.weights.checkpoint import Checkpoint, ModelDirectory, overlooked, problems
from sparkops.weights.plan import in_words
from sparkops.weights.steps import remedy


def list_(context: typer.Context, node: NODES = None, json: JSON = False) -> None:
    """List models and their state

    Prints the size of each directory under model_dir, and its missing or damaged files.

    Example: sparkops models list --node spark-1
    """
    fleet = load_fleet(context.obj)
    with connect(fleet, node or (), required=False) as connected:
        outcomes = {**connected.unreachable, **connected.on_each(models.look)}
    errors = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, SparkopsError)}
    directories = {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, SparkopsError)}
    if json:
        nodes = {name: _as_json(directory) for name, directory in directories.items()}
        data_json({"nodes": {**nodes, **{name: {"error": str(error)} for name, error in errors.items()}}})
    for name, directory in () if json else directories.items():
        free = f", {directory.free / 1e9:.1f} GB free" if directory.exists else " not found"
        data(f"{name:<16} {model_dir(fleet.nodes[name])}{free}")
        for checkpoint in directory.checkpoints.values():
            data(f"  {checkpoint.path:<44} {checkpoint.size / 1e9:>8.2f} GB  {_state(checkpoint)}")
    if errors:
        raise joined(list(errors.values()))


def _state(checkpoint: Checkpoint) -> str:
    reasons, extra = in_words(problems(checkpoint)), overlooked(checkpoint)
    state = reasons or "complete" + (f", revision {checkpoint.commit[:12]}" if checkpoint.commit else "")
    return state + (f" (not in the index, not read: {', '.join(extra)})" if extra else "")


def _as_json(directory: ModelDirectory) -> dict[str, object]:
    models = [
        {
            "path": checkpoint.path,
            "bytes": checkpoint.size,
            "complete": checkpoint.complete,
            "problems": list(problems(checkpoint)),
            "model": checkpoint.origin.model if checkpoint.origin else None,
            "revision": checkpoint.commit,
        }
        for checkpoint in directory.checkpoints.values()
    ]
    facts = {"there": directory.exists, "writable": directory.writable, "free_bytes": directory.free}
    return {**facts, "models": models}


def verify(context: typer.Context, recipe: RECIPE, node: NODES = None, json: JSON = False) -> None:
    """Check weights against the recipe

    Checks names, sizes, headers, index and revision on every node that has them.

    Exit code 1 if weights are missing or wrong.

    Example: sparkops models verify 122b-autoround
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    path, named = loaded.model.path, node or loaded.nodes
    with connect(fleet, named) as connected:
        results = models.verify(connected, loaded, everywhere=bool(named))
    if json:
        nodes = {name: {"complete": not problem, "problem": problem or None} for name, problem in results.items()}
        data_json({"path": path, "nodes": nodes})
    errors = []
    for name, problem in results.items():
        if problem:
            errors.append(NodeError(name, f"{path}: {problem}", next_step=remedy(loaded, name)))
        else:
            say(f"{name}: {path} is complete", fg="green")
    if not results:
        names = list(connected.members)
        problem = f"{path} not found on any of these nodes"
        raise NodeError(", ".join(names), problem, next_step=remedy(loaded, names[0]))
    if errors:
        raise joined(errors)
