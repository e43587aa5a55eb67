"""models list and models verify: what lies on the nodes, and whether an engine may count on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, say
from sparkops.errors import NodeError, NodesFailed, SparkopsError

if TYPE_CHECKING:
    from sparkops.config.recipe import Recipe
    from sparkops.facts.checkpoint import Checkpoint, ModelDirectory

RECIPE = Annotated[str, typer.Argument(help="A recipe's file or name.")]
NODES = Annotated[list[str] | None, typer.Option("--node", "-n", help="Only these nodes; again for more.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def list_(context: typer.Context, node: NODES = None, json: JSON = False) -> None:
    """List what lies under model_dir on each node, how large it is, and whether an engine may count on it."""
    from sparkops.commands.docker import model_dir
    from sparkops.fleet import models
    from sparkops.fleet.connected import connect

    settings: Settings = context.obj
    fleet = settings.fleet()
    with connect(fleet, node or (), required=False) as connected:
        seen = {**connected.unreachable, **connected.on_each(models.look)}
    errors = {name: each for name, each in seen.items() if isinstance(each, SparkopsError)}
    found = {name: each for name, each in seen.items() if not isinstance(each, SparkopsError)}
    if json:
        told = {name: _as_json(each) for name, each in found.items()}
        data_json({"nodes": {**told, **{name: {"error": str(each)} for name, each in errors.items()}}})
    for name, each in () if json else found.items():
        where = model_dir(fleet.nodes[name])
        data(f"{name:<16} {where}" + (f", {each.free / 1e9:.1f} GB free" if each.there else " is not there"))
        for checkpoint in each.checkpoints.values():
            data(f"  {checkpoint.path:<44} {checkpoint.size / 1e9:>8.2f} GB  {_state(checkpoint)}")
    if errors:
        raise NodesFailed(list(errors.values()))


def _state(found: Checkpoint) -> str:
    from sparkops.facts.checkpoint import overlooked, problems
    from sparkops.plan.models import in_words

    reasons, extra = in_words(problems(found)), overlooked(found)
    said = reasons or "complete" + (f", revision {found.commit[:12]}" if found.commit else "")
    return said + (f" (in no index, so not read: {', '.join(extra)})" if extra else "")


def _as_json(found: ModelDirectory) -> dict[str, object]:
    from sparkops.facts.checkpoint import problems

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
    return {"there": found.there, "writable": found.writable, "free_bytes": found.free, "models": models}


def verify(context: typer.Context, recipe: RECIPE, node: NODES = None, json: JSON = False) -> None:
    """Hold a recipe's weights against their names, sizes, headers, index and revision, on each node that has them."""
    from sparkops.fleet import models
    from sparkops.fleet.connected import connect

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet)
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
    from sparkops.plan.steps import remedy

    if not said:
        step = remedy(recipe, nodes[0])
        raise NodeError(", ".join(nodes), f"{recipe.model.path} is on none of them", next_step=step)
    wrong = [
        NodeError(name, f"{recipe.model.path}: {why}", next_step=remedy(recipe, name))
        for name, why in said.items()
        if why
    ]
    if wrong:
        raise wrong[0] if len(wrong) == 1 else NodesFailed(wrong)
