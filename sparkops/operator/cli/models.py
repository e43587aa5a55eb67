"""The verbs models list, pull, copy, verify and prepare."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.errors import NodeError, SparkopsError, UsageError, joined
from sparkops.node.docker.commands import model_dir
from sparkops.node.member import Member
from sparkops.node.progress import OnEvent
from sparkops.operator.build.hub.pull import pull_model
from sparkops.operator.build.weights import models
from sparkops.operator.build.weights.checkpoint import Checkpoint, ModelDirectory, overlooked, problems
from sparkops.operator.build.weights.models import CopiedWeights
from sparkops.operator.build.weights.plan import in_words
from sparkops.operator.build.weights.prepare import Preparation, plan_steps, take_steps
from sparkops.operator.build.weights.steps import read_by_engine, remedy
from sparkops.operator.cli.images import make_hub, make_order
from sparkops.operator.cli.named import copy_targets, load_fleet, load_recipe
from sparkops.operator.cli.options import (
    DRY_RUN,
    ENDPOINT,
    JSON,
    NODE,
    NODES,
    RECIPE,
    SOURCE,
    TARGETS,
    TOKEN_FILE,
    WAIT,
)
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.fleet.connected import connect
from sparkops.units import shown_size

Result = TypeVar("Result")
REPLACE = Annotated[bool, typer.Option("--replace", help="Replace another model in the same directory")]


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
        free = f", {shown_size(directory.free)} free" if directory.exists else " not found"
        data(f"{name:<16} {model_dir(fleet.nodes[name])}{free}")
        for checkpoint in directory.checkpoints.values():
            data(f"  {checkpoint.path:<44} {shown_size(checkpoint.size):>10}  {_state(checkpoint)}")
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


def pull(
    context: typer.Context,
    recipe: RECIPE,
    node: NODE = None,
    token_file: TOKEN_FILE = None,
    endpoint: ENDPOINT = "",
    replace: REPLACE = False,
    json: JSON = False,
) -> None:
    """Download a recipe's weights to one node

    An interrupted download continues where it stopped. Each file must have the size and sha256 that the hub lists.

    The download runs in an image of its own, built on the node, so that the recipe's image never sees the token.

    Example: sparkops models pull 122b-autoround --node spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    hub = make_hub(fleet, token_file, endpoint, replace=replace)

    def fetch(member: Member, report: OnEvent) -> list[Checkpoint]:
        return [pull_model(member, source, hub, report) for source in loaded.model.fetched]

    name, pulled = _on_one(fleet, loaded, node, fetch)
    for model in pulled:
        commit = f", revision {model.commit}" if model.commit else ""
        say(f"{name}: {model.path}, {shown_size(model.size)}{commit}", fg="green")
    if loaded.model.steps:
        say(f"  next: sparkops models prepare {recipe} --node {name}", bold=True)
    elif len(fleet.nodes) > 1:
        say(f"  next: sparkops models copy {recipe} --from {name}", bold=True)
    if json:
        rows = [{"path": model.path, "bytes": model.size, "revision": model.commit} for model in pulled]
        data_json({"node": name, "models": rows})


def _on_one(
    fleet: Fleet, recipe: Recipe, node: str | None, work: Callable[[Member, OnEvent], Result]
) -> tuple[str, Result]:
    """Run `work` on one node; return the node and the result. Ctrl-C stops it on the node as well."""
    name = node or (recipe.nodes or list(fleet.nodes))[0]
    with connect(fleet, [name]) as connected, progress() as report:
        return name, connected.all(lambda member: work(member, report))[name]


def copy(
    context: typer.Context,
    recipe: RECIPE,
    source: SOURCE,
    to: TARGETS = None,
    checksum: Annotated[bool, typer.Option("--checksum", help="Compare sha256, not only names and sizes")] = False,
    replace: REPLACE = False,
    json: JSON = False,
) -> None:
    """Copy weights from one node to others

    Sends only the files that a node lacks.

    Example: sparkops models copy 122b-autoround --from spark-1 --to spark-2
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    targets = copy_targets(fleet, loaded, source, to)
    with connect(fleet, [source, *targets]) as connected, progress() as report:
        of_each = [
            models.copy(connected, model, source, report, checksum=checksum, replace_other=replace)
            for model in read_by_engine(loaded)
        ]
    copied = {
        name: CopiedWeights(sum(one[name].sent for one in of_each), sum(one[name].size for one in of_each))
        for name in of_each[0]
    }
    for name, model in copied.items():
        sent = f"{shown_size(model.sent)} sent" if model.sent else "nothing sent"
        say(f"{name}: {loaded.model.path}, {shown_size(model.size)}, {sent}", fg="green")
    if json:
        nodes = {name: {"bytes": model.size, "sent": model.sent} for name, model in copied.items()}
        data_json({"path": loaded.model.path, "from": source, "nodes": nodes})


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


def prepare(
    context: typer.Context,
    recipe: RECIPE,
    node: NODE = None,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    replace: REPLACE = False,
) -> None:
    """Build a derived model from its sources

    Runs the steps of the recipe on one node; a finished step is not repeated.

    Example: sparkops models prepare 122b-autoround-hybrid --node spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    if not loaded.model.steps:
        raise UsageError(f"{loaded.name}: the recipe has no model.steps", next_step=f"sparkops models pull {recipe}")
    image = make_order(loaded, fleet).tag

    def run_steps(member: Member, report: OnEvent) -> Preparation:
        planned = plan_steps(member, loaded, image, replace=replace)
        if not dry_run:
            take_steps(member, planned, report, wait)
        return planned

    name, preparation = _on_one(fleet, loaded, node, run_steps)
    if not preparation.steps:
        say(f"{name}: nothing to do: {loaded.model.path} is complete", fg="green")
    elif not dry_run:
        say(f"{name}: {loaded.model.path} is complete", fg="green")
    else:
        data("\n".join(f"{name}: {number}. {due}" for number, due in enumerate(preparation.steps, 1)))
        if preparation.problem:
            raise preparation.problem
