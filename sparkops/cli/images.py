"""build, images copy, and prune of cli/pruning.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.pruning import prune
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data_json, progress, say
from sparkops.errors import GateRefused, NodesFailed, UsageError

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.config.recipe import Recipe
    from sparkops.fleet.build import Built, Order
    from sparkops.fleet.delivery import Copied

RECIPE = Annotated[str, typer.Argument(help="A recipe's file or name.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON object.")]

family = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Images on the nodes: copy them to others.")


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(build)
    app.command()(prune)
    family.command()(copy)
    family.callback()(lambda: None)  # one verb alone would be the whole family
    app.add_typer(family, name="images")


def build(
    context: typer.Context,
    recipe: RECIPE,
    node: Annotated[list[str] | None, typer.Option("--node", "-n", help="Only these nodes; again for more.")] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Build on one node, the first, and copy it to the others: with one --node, to all others."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option(help="Show what would run.")] = False,
    json: JSON = False,
) -> None:
    """Build a recipe's image on every node at once, and ask it what it is. What is there already is left alone.

    Ranks of one replica must run the same content, and two builds are never the same: for them it is built once.
    """
    from sparkops.fleet import build as building
    from sparkops.fleet import distribute
    from sparkops.fleet.connected import connect

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet)
    order = make_order(wanted, fleet)
    ranks = wanted.serve.tensor_parallel > 1
    nodes = _nodes(wanted, fleet, node or (), once=once or ranks)
    once = len(nodes) > 1 and (once or ranks)
    if once:
        say(f"built once, and copied{': ranks must run the same content' if ranks else ''}: {', '.join(nodes)}")
    if dry_run:
        _show(order, nodes, once=once)
        return
    done: Mapping[str, Built | Copied]
    source = None
    with _refusals(order, json=json), connect(fleet, nodes) as connected, progress() as tell:
        if once:
            source, done = distribute.build_once(connected, order, tell)
        else:
            done = building.build(connected, order, tell)
    _tell(order.tag, source, done)
    if json:
        nodes_json = {name: _as_json(each, source) for name, each in done.items()}
        data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": nodes_json})


@contextmanager
def _refusals(order: Order, *, json: bool) -> Iterator[None]:
    """With --json an image that was refused has its verdicts on stdout as well: the error goes to stderr."""
    try:
        yield
    except (GateRefused, NodesFailed) as error:
        refused = [each for each in getattr(error, "errors", (error,)) if isinstance(each, GateRefused)]
        if json and refused:
            nodes = {each.node: {"image": None, "built": False, "gates": each.verdicts} for each in refused}
            data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": nodes})
        raise


def _nodes(recipe: Recipe, fleet: Fleet, named: Sequence[str], *, once: bool) -> Sequence[str]:
    """The nodes that get the image, the one that builds it first where one builds for all."""
    wanted = recipe.nodes or list(fleet.nodes)
    if once and len(named) == 1:
        return [*named, *(name for name in wanted if name != named[0])]
    return named or wanted


def _show(order: Order, nodes: Sequence[str], *, once: bool) -> None:
    from sparkops.commands import docker
    from sparkops.release import image_labels

    say(f"{order.tag} on {nodes[0] if once else ', '.join(nodes)}")
    say(
        f"  $ {docker.build(order.candidate, image_labels(order.name, order.context.digest), order.context.build_args)}"
    )
    if once:
        say(f"{order.tag} from {nodes[0]}, or whichever has it already, to the others: only the layers that they lack")


def _tell(tag: str, source: str | None, done: Mapping[str, Built | Copied]) -> None:
    from sparkops.fleet.build import Built

    for name, each in done.items():
        if isinstance(each, Built):
            how = f"{'built' if each.new else 'nothing to do'}: {tag}, {each.size_gib:.2f} GiB"
        else:
            how = f"{f'copied from {source}' if each.sent else 'nothing to do'}: {tag}, {each.sent / 1e6:.2f} MB sent"
        say(f"{name}: {how}", fg="green")


def _as_json(done: Built | Copied, source: str | None) -> dict[str, object]:
    from sparkops.fleet.build import Built

    if isinstance(done, Built):
        gates = [asdict(verdict) for verdict in done.verdicts]
        return {"image": done.image, "built": done.new, "from": None, "sent": 0, "gates": gates}
    return {"image": done.image, "built": False, "from": source, "sent": done.sent, "gates": []}


def copy(
    context: typer.Context,
    recipe: RECIPE,
    source: Annotated[str, typer.Option("--from", help="The node that has it.")],
    to: Annotated[list[str] | None, typer.Option("--to", help="Only to these nodes; again for more.")] = None,
    json: JSON = False,
) -> None:
    """Copy a recipe's image from one node to others at once. Only layers that a node lacks are sent."""
    from sparkops.fleet import distribute
    from sparkops.fleet.connected import connect

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet)
    targets = [name for name in to or wanted.nodes or fleet.nodes if name != source]
    if not targets:
        raise UsageError(f"there is no node to copy to but {source} itself", next_step="Name others with --to.")
    tag = make_order(wanted, fleet).tag
    with connect(fleet, [source, *targets]) as connected, progress() as tell:
        copied = distribute.copy(connected, tag, source, tell)
    _tell(tag, source, copied)
    if json:
        nodes = {name: {"image": each.image, "bytes": each.size, "sent": each.sent} for name, each in copied.items()}
        data_json({"tag": tag, "from": source, "nodes": nodes})


def make_order(recipe: Recipe, fleet: Fleet) -> Order:
    """What to build: read at the door, decided in render."""
    from sparkops.config import assets
    from sparkops.fleet.build import of_recipe
    from sparkops.render.context import context

    made = context(recipe, assets.load_templates(), assets.load_mods(), assets.load_inputs(fleet))
    return of_recipe(recipe, made, assets.load_gate())
