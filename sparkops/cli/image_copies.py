"""The verbs images copy, export and load: images from node to node, and through a directory without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sparkops.agents import agents
from sparkops.cli.images import make_order, show_results
from sparkops.cli.models import NODE, make_hub
from sparkops.cli.named import copy_targets, load_fleet, load_recipe
from sparkops.cli.options import DRY_RUN, JSON, NODES, RECIPE, SOURCE, TARGETS, WAIT, make_family
from sparkops.cli.progress import progress
from sparkops.cli.terminal import data, data_json, say
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.images import distribute, offline
from sparkops.images.build import BuildOrder
from sparkops.images.delivery import CopiedImage
from sparkops.images.layout import Layout
from sparkops.images.offline import ExportedImage, LoadedImage, Loading
from sparkops.nodes.connected import connect
from sparkops.nodes.progress import silent

DIRECTORY = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Directory with images, such as a USB disk")]

family = make_family("images", "Manage images on the nodes")


@family.command()
def copy(context: typer.Context, recipe: RECIPE, source: SOURCE, to: TARGETS = None, json: JSON = False) -> None:
    """Copy an image from one node to others

    Sends only the layers that a node lacks.

    Example: sparkops images copy 122b-autoround --from spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    targets = copy_targets(fleet, loaded, source, to)
    tag = make_order(loaded, fleet).tag
    with connect(fleet, [source, *targets]) as connected, progress() as report:
        copied = distribute.copy(connected, tag, source, report)
    show_results(tag, source, copied)
    if json:
        nodes = {
            name: {"image": image.image, "bytes": image.size, "sent": image.sent} for name, image in copied.items()
        }
        data_json({"tag": tag, "from": source, "nodes": nodes})


@family.command()
def export(
    context: typer.Context,
    recipe: RECIPE,
    directory: DIRECTORY,
    node: NODE = None,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Export a recipe's images to a directory

    Stores the images of recipe, guard, gateway and hub from one node, for `images load` on nodes without a network.
    The node builds those that it lacks.

    The directory has the OCI image layout, and may hold the images of several recipes: a layer is stored once. After
    an interruption the same command continues. Weights are not included.

    Example: sparkops images export 122b-autoround /media/usb/sparkops --node spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    orders, layout = _orders(loaded, fleet), Layout(directory)
    name = node or (loaded.nodes or list(fleet.nodes))[0]
    with connect(fleet, [name]) as connected, progress() as report:
        if dry_run:
            lines = offline.preview_export(connected, orders, layout)
        else:
            images = offline.export(connected, orders, layout, report)
    if dry_run:
        data("\n".join(lines))
        return
    for image in images:
        text = f"{image.received / 1e6:.2f} MB received" if image.received else "nothing to do"
        say(f"{image.stored.tag}: {sum(image.stored.sizes) / 1e6:.2f} MB, {text}", fg="green")
    say(f"  next: sparkops images load {recipe} {directory}", bold=True)
    if json:
        data_json({"directory": str(directory), "from": name, "images": [*map(_exported, images)]})


def _exported(image: ExportedImage) -> dict[str, object]:
    stored = image.stored
    layers = [{"digest": layer.digest, "bytes": layer.size} for layer in stored.layers]
    facts = {"digest": stored.digest, "architecture": stored.architecture, "layers": layers}
    return {"tag": stored.tag, **facts, "bytes": sum(stored.sizes), "received": image.received}


@family.command("load")
def load(
    context: typer.Context,
    recipe: RECIPE,
    directory: DIRECTORY,
    node: NODES = None,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Load exported images onto nodes

    Afterwards `build` and `deploy` of the recipe need no network. A node gets only the layers that it lacks, several
    nodes get them from the first one; every file is checked against its SHA-256, and the images pass their gates again.

    The recipe's image goes to its nodes, those of guard, gateway and hub to all. Where the laptop does not reach the
    node either, run this on the node, with `transport: local` in the inventory.

    Exit code 2 if the directory has no image that fits recipe and inventory, 4 if an engine loads on a node.

    Example: sparkops images load 122b-autoround /media/usb/sparkops --node spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    orders = _orders_by_node(loaded, fleet, node or ())
    offline.chosen(Layout(directory), offline.all_of(orders))  # before it connects
    with connect(fleet, [*orders]) as connected, progress() as report:
        if dry_run:
            lines = offline.preview(Loading(connected, Layout(directory), silent), orders)
        else:
            results = offline.load(Loading(connected, Layout(directory), report, wait), orders)
    if dry_run:
        data("\n".join(lines))
        return
    for name, images in results.items():
        for tag, image in images.items():
            text = f"loaded, {image.sent / 1e6:.2f} MB sent" if image.sent else "nothing to do"
            say(f"{name}: {tag}: {text}", fg="green")
    if json:
        nodes = {name: [_loaded(tag, image) for tag, image in images.items()] for name, images in results.items()}
        data_json({"directory": str(directory), "nodes": nodes})


def _loaded(tag: str, image: CopiedImage) -> dict[str, object]:
    gates = [asdict(verdict) for verdict in image.verdicts] if isinstance(image, LoadedImage) else []
    return {"tag": tag, "image": image.image, "sent": image.sent, "gates": gates}


def _orders(recipe: Recipe, fleet: Fleet) -> list[BuildOrder]:
    """Return the builds of everything that a node runs for a recipe. Raises UsageError without a gateway."""
    specs = agents.load(fleet)
    hub = make_hub(fleet, None, "").order
    return [make_order(recipe, fleet), specs.guard, specs.gateway.order, hub]


def _orders_by_node(recipe: Recipe, fleet: Fleet, named: Sequence[str]) -> dict[str, list[BuildOrder]]:
    """Return the images of each node. Every node gets that of the gateway: it may be rebuilt there."""
    own, *shared = _orders(recipe, fleet)
    recipe_nodes = named or recipe.nodes or [*fleet.nodes]
    return {name: [*([own] if name in recipe_nodes else []), *shared] for name in named or fleet.nodes}
