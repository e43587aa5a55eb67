"""The verbs models pull, copy and prepare; cli/weights.py has list and verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from sparkops.cli import weights
from sparkops.cli.images import make_order
from sparkops.cli.named import copy_targets, load_fleet, load_recipe
from sparkops.cli.options import DRY_RUN, ENDPOINT, JSON, RECIPE, SOURCE, TARGETS, TOKEN_FILE, WAIT, make_family
from sparkops.cli.progress import progress
from sparkops.cli.terminal import data, data_json, say
from sparkops.config import assets, files
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.errors import UsageError
from sparkops.hub.pull import IMAGE, Hub, hub_order, pull_model
from sparkops.nodes.connected import Member, connect
from sparkops.nodes.progress import OnEvent
from sparkops.weights import models
from sparkops.weights.checkpoint import Checkpoint
from sparkops.weights.models import CopiedWeights
from sparkops.weights.prepare import Preparation, plan_steps, take_steps
from sparkops.weights.steps import read_by_engine

Result = TypeVar("Result")
NODE = Annotated[
    str | None, typer.Option("--node", "-n", metavar="NODE", help="Node to use; default: the first of the recipe")
]
REPLACE = Annotated[bool, typer.Option("--replace", help="Replace another model in the same directory")]

family = make_family("models", "Manage model weights on the nodes")


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

    An interrupted download continues where it stopped.

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
        say(f"{name}: {model.path}, {model.size / 1e9:.2f} GB, revision {model.commit}", fg="green")
    if loaded.model.steps:
        say(f"  next: sparkops models prepare {recipe} --node {name}", bold=True)
    elif len(fleet.nodes) > 1:
        say(f"  next: sparkops models copy {recipe} --from {name}", bold=True)
    if json:
        rows = [{"path": model.path, "bytes": model.size, "revision": model.commit} for model in pulled]
        data_json({"node": name, "models": rows})


def make_hub(fleet: Fleet, token_file: Path | None, endpoint: str, *, replace: bool = False) -> Hub:
    """Return the settings of a download. Raises UsageError for an unreadable token or one sent unencrypted."""
    inputs, parent = assets.load_inputs(fleet, wheels=False), fleet.build.parent(IMAGE)
    order = hub_order(assets.load_templates(), assets.load_hub_packages(), inputs, parent)
    return Hub(order, read_token(token_file), endpoint, replace)


def read_token(file: Path | None) -> str:
    """Return the token in a file; empty without a file. Raises UsageError for one that others can read."""
    if file is None:
        return ""
    try:
        mode, text = file.stat().st_mode, files.text(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(f"{file} cannot be read: {reason}") from None
    if mode & files.OTHERS:
        raise UsageError(f"{file} is readable by other users", next_step=f"chmod 600 {file}")
    if len(text.split()) != 1:
        raise UsageError(f"{file}: expected one token")
    return text


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
        sent = f"{model.sent / 1e6:.1f} MB sent" if model.sent else "nothing sent"
        say(f"{name}: {loaded.model.path}, {model.size / 1e9:.2f} GB, {sent}", fg="green")
    if json:
        nodes = {name: {"bytes": model.size, "sent": model.sent} for name, model in copied.items()}
        data_json({"path": loaded.model.path, "from": source, "nodes": nodes})


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


family.command("list")(weights.list_)
for verb in (pull, copy, weights.verify, prepare):
    family.command()(verb)
