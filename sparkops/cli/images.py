"""build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data_json, progress, say

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.config.recipe import Recipe
    from sparkops.fleet.build import Order


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(build)


def build(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="A recipe's file or name.")],
    node: Annotated[list[str] | None, typer.Option("--node", "-n", help="Only these nodes; again for more.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would run.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Build a recipe's image on every node at once, and ask it what it is. What is there already is left alone."""
    from sparkops.commands import docker
    from sparkops.fleet import build as building
    from sparkops.fleet.connected import connect
    from sparkops.release import image_labels

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet)
    order = make_order(wanted, fleet)
    nodes = node or wanted.nodes or list(fleet.nodes)
    if dry_run:
        labels = image_labels(wanted.name, order.context.digest)
        say(f"{order.tag} on {', '.join(nodes)}")
        say(f"  $ {docker.build(order.candidate, labels, order.context.build_args)}")
        return
    with connect(fleet, nodes) as connected, progress() as tell:
        built = building.build(connected, order, tell)
    for name, image in built.items():
        say(f"{name}: {'built' if image.new else 'nothing to do'}: {order.tag}, {image.size_gib:.2f} GiB", fg="green")
    if json:
        nodes_json = {name: {"image": each.image, "built": each.new} for name, each in built.items()}
        data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": nodes_json})


def make_order(recipe: Recipe, fleet: Fleet) -> Order:
    """What to build: read at the door, decided in render."""
    from sparkops.config import assets
    from sparkops.fleet.build import of_recipe
    from sparkops.render.context import context

    made = context(recipe, assets.load_templates(), assets.load_mods(), assets.load_inputs(fleet))
    return of_recipe(recipe, made, assets.load_gate())
