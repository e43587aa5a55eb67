"""The verbs build and images copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer

from sparkops.cli.inventory import copy_targets, load_fleet
from sparkops.cli.named import load_recipe
from sparkops.cli.options import DRY_RUN, JSON, NODES, RECIPE, SOURCE, TARGETS, WAIT, make_family
from sparkops.cli.progress import progress
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data_json, say
from sparkops.config import assets
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.docker import commands
from sparkops.errors import ImageRejected, NodesFailed
from sparkops.images import distribute
from sparkops.images.build import BuildOrder, Built, build_on_all, of_recipe
from sparkops.images.delivery import CopiedImage
from sparkops.nodes.connected import connect
from sparkops.release import image_labels
from sparkops.render.context import build_context, mounts_wheels, render

family = make_family("images", "Manage images on the nodes")


def build(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    once: Annotated[
        bool,
        typer.Option("--once", help="Build on the first node and copy to the others; with one --node, to all others"),
    ] = False,
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Build and verify an image on its nodes

    All nodes build at once; an image that exists and matches is kept.

    Ranks of one replica must run the same content, and two builds always differ: their image is built on one node.

    Exit code 4 if an engine loads on a node.

    Example: sparkops build 122b-autoround --node spark-1
    """
    settings: Settings = context.obj
    fleet = load_fleet(settings)
    wanted = load_recipe(recipe, fleet)
    order = make_order(wanted, fleet)
    ranks = wanted.serve.tensor_parallel > 1
    nodes = _nodes(wanted, fleet, node or (), once=once or ranks)
    once = len(nodes) > 1 and (once or ranks)
    if once:
        say(f"built once, and copied{': ranks must run the same content' if ranks else ''}: {', '.join(nodes)}")
    if dry_run:
        _show(order, nodes, once=once)
        return
    done: Mapping[str, Built | CopiedImage]
    source = None
    with _refusals(order, json=json), connect(fleet, nodes) as connected, progress() as tell:
        if once:
            source, done = distribute.build_once(connected, order, tell, wait)
        else:
            done = build_on_all(connected, order, tell, wait)
    _tell(order.tag, source, done)
    if json:
        nodes_json = {name: _as_json(each, source) for name, each in done.items()}
        data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": nodes_json})


@contextmanager
def _refusals(order: BuildOrder, *, json: bool) -> Iterator[None]:
    """With --json, print the verdicts on a rejected image to stdout as well; the error goes to stderr."""
    try:
        yield
    except (ImageRejected, NodesFailed) as error:
        refused = [each for each in getattr(error, "errors", (error,)) if isinstance(each, ImageRejected)]
        if json and refused:
            nodes = {each.node: {"image": None, "built": False, "gates": each.verdicts} for each in refused}
            data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": nodes})
        raise


def _nodes(recipe: Recipe, fleet: Fleet, named: Sequence[str], *, once: bool) -> Sequence[str]:
    """Return the nodes that get the image; if one builds for all, it comes first."""
    wanted = recipe.nodes or list(fleet.nodes)
    if once and len(named) == 1:
        return [*named, *(name for name in wanted if name != named[0])]
    return named or wanted


def _show(order: BuildOrder, nodes: Sequence[str], *, once: bool) -> None:
    say(f"{order.tag} on {nodes[0] if once else ', '.join(nodes)}")
    labels = image_labels(order.name, order.context.digest)
    say(f"  $ {commands.build(order.candidate, labels, order.context.build_args)}")
    if once:
        say(f"{order.tag} copied to the others from {nodes[0]} or a node that has it: missing layers only")


def _tell(tag: str, source: str | None, done: Mapping[str, Built | CopiedImage]) -> None:
    for name, each in done.items():
        if isinstance(each, Built):
            how = f"{'built' if each.new else 'nothing to do'}: {tag}, {each.size_gib:.2f} GiB"
        else:
            how = f"{f'copied from {source}' if each.sent else 'nothing to do'}: {tag}, {each.sent / 1e6:.2f} MB sent"
        say(f"{name}: {how}", fg="green")


def _as_json(done: Built | CopiedImage, source: str | None) -> dict[str, object]:
    if isinstance(done, Built):
        gates = [asdict(verdict) for verdict in done.verdicts]
        return {"image": done.image, "built": done.new, "from": None, "sent": 0, "gates": gates}
    return {"image": done.image, "built": False, "from": source, "sent": done.sent, "gates": []}


@family.command()
def copy(
    context: typer.Context,
    recipe: RECIPE,
    source: SOURCE,
    to: TARGETS = None,
    json: JSON = False,
) -> None:
    """Copy an image from one node to others

    Sends only the layers that a node lacks.

    Example: sparkops images copy 122b-autoround --from spark-1
    """
    settings: Settings = context.obj
    fleet = load_fleet(settings)
    wanted = load_recipe(recipe, fleet)
    targets = copy_targets(fleet, wanted, source, to)
    tag = make_order(wanted, fleet).tag
    with connect(fleet, [source, *targets]) as connected, progress() as tell:
        copied = distribute.copy(connected, tag, source, tell)
    _tell(tag, source, copied)
    if json:
        nodes = {name: {"image": each.image, "bytes": each.size, "sent": each.sent} for name, each in copied.items()}
        data_json({"tag": tag, "from": source, "nodes": nodes})


def make_order(recipe: Recipe, fleet: Fleet) -> BuildOrder:
    """Return the build of a recipe, from its templates, mods and inputs."""
    templates = assets.load_templates()
    inputs = assets.load_inputs(fleet, wheels=mounts_wheels(render(recipe, templates)))
    made = build_context(recipe, templates, assets.load_mods(), inputs)
    return of_recipe(recipe, made, assets.load_gate())
