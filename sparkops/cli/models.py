"""models: pull, copy, prepare; cli/weights.py has list and verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from sparkops.cli import weights
from sparkops.cli.images import make_order
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, progress, say
from sparkops.errors import UsageError

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.config.recipe import Recipe
    from sparkops.facts.checkpoint import Checkpoint
    from sparkops.fleet.connected import Member
    from sparkops.fleet.prepare import Preparation
    from sparkops.fleet.progress import Tell

Result = TypeVar("Result")
OTHERS = 0o077  # what nobody but the owner of a token's file may have
RECIPE = Annotated[str, typer.Argument(help="A recipe's file or name.")]
NODE = Annotated[str | None, typer.Option("--node", "-n", help="This node; left out, the recipe's first.")]
REPLACE = Annotated[bool, typer.Option("--replace", help="Also remove another model, whole, that has the name.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON object.")]

family = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Weights on the nodes: list, fetch, copy, verify and prepare."
)


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    family.command("list")(weights.list_)
    for verb in (pull, copy, weights.verify, prepare):
        family.command()(verb)
    app.add_typer(family, name="models")


def pull(
    context: typer.Context,
    recipe: RECIPE,
    node: NODE = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the hub's token, mode 0600.", envvar="HF_TOKEN_PATH")
    ] = None,
    endpoint: Annotated[str, typer.Option(help="URL of a mirror of the hub.", envvar="HF_ENDPOINT")] = "",
    replace: REPLACE = False,
    json: JSON = False,
) -> None:
    """Fetch a recipe's weights from their hub to one node. An interrupted fetch continues where it stopped.

    A small image of sparkops fetches them, built on the node first: no code of the recipe's image sees the token.
    """
    from sparkops.config import assets
    from sparkops.fleet import hub
    from sparkops.render import hub as render

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet)
    inputs, parent = assets.load_inputs(fleet), fleet.build.parent(render.IMAGE)
    order = hub.order(assets.load_templates(), assets.load_hub_packages(), inputs, parent)
    source = hub.Hub(order, _token(token_file), endpoint, replace)

    def fetch(member: Member, tell: Tell) -> list[Checkpoint]:
        return [hub.pull(member, each, source, tell) for each in wanted.model.fetched]

    name, found = _on_one(fleet, wanted, node, fetch)
    for each in found:
        say(f"{name}: {each.path}, {each.size / 1e9:.2f} GB, revision {each.commit}", fg="green")
    if wanted.model.steps:
        say(f"  next: sparkops models prepare {recipe} --node {name}", bold=True)
    elif len(fleet.nodes) > 1:
        say(f"  next: sparkops models copy {recipe} --from {name}", bold=True)
    if json:
        models = [{"path": each.path, "bytes": each.size, "revision": each.commit} for each in found]
        data_json({"node": name, "models": models})


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        mode, text = file.stat().st_mode, file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"{file} cannot be read: {reason}") from None
    if mode & OTHERS:
        raise UsageError(f"{file} can be read by others", next_step=f"chmod 600 {file}")
    if len(text.split()) != 1:
        raise UsageError(f"{file} does not hold one token and nothing else")
    return text


def _on_one(
    fleet: Fleet, recipe: Recipe, node: str | None, work: Callable[[Member, Tell], Result]
) -> tuple[str, Result]:
    """The node's name, and what `work` has made there. Ctrl-C stops it on the node as well."""
    from sparkops.fleet.connected import connect

    name = node or (recipe.nodes or list(fleet.nodes))[0]
    with connect(fleet, [name]) as connected, progress() as tell:
        return name, connected.all(lambda member: work(member, tell))[name]


def copy(
    context: typer.Context,
    recipe: RECIPE,
    source: Annotated[str, typer.Option("--from", help="The node that has them.")],
    to: Annotated[list[str] | None, typer.Option("--to", help="Only to these nodes; again for more.")] = None,
    checksum: Annotated[bool, typer.Option(help="Compare files by sha256, not by name and size alone.")] = False,
    replace: REPLACE = False,
    json: JSON = False,
) -> None:
    """Copy a recipe's weights from one node to others at once. Only what a node lacks is sent."""
    from sparkops.fleet import models
    from sparkops.fleet.connected import connect
    from sparkops.plan.steps import engine_reads

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet)
    targets = [name for name in to or wanted.nodes or fleet.nodes if name != source]
    if not targets:
        raise UsageError(f"there is no node to copy to but {source} itself", next_step="Name others with --to.")
    options = models.Options(checksum=checksum, replace=replace)
    with connect(fleet, [source, *targets]) as connected, progress() as tell:
        copied = models.copy(connected, engine_reads(wanted), source, options, tell)
    for name, each in copied.items():
        how = f"{each.sent / 1e6:.1f} MB sent" if each.sent else "nothing sent"
        say(f"{name}: {wanted.model.path}, {each.size / 1e9:.2f} GB, {how}", fg="green")
    if json:
        nodes = {name: {"bytes": each.size, "sent": each.sent} for name, each in copied.items()}
        data_json({"path": wanted.model.path, "from": source, "nodes": nodes})


def prepare(
    context: typer.Context,
    recipe: RECIPE,
    node: NODE = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would run.")] = False,
    replace: REPLACE = False,
) -> None:
    """Take the steps that make a recipe's model out of others, on one node. Only what is due is done."""
    from sparkops.fleet import prepare as preparing

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet)
    if not wanted.model.steps:
        raise UsageError(f"{wanted.name} has no steps to take", next_step=f"sparkops models pull {recipe}")
    image = make_order(wanted, fleet).tag

    def work(member: Member, tell: Tell) -> Preparation:
        made = preparing.plan(member, wanted, image, replace=replace)
        if not dry_run:
            preparing.prepare(member, made, tell)
        return made

    name, made = _on_one(fleet, wanted, node, work)
    if not made.steps:
        say(f"{name}: nothing to do: {wanted.model.path} is complete", fg="green")
    elif not dry_run:
        say(f"{name}: {wanted.model.path} is complete", fg="green")
    else:
        data("\n".join(f"{name}: {number}. {due}" for number, due in enumerate(made.steps, 1)))
        if made.problem:
            raise made.problem
