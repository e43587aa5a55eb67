"""The verb build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sparkops.config import assets
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.errors import ImageRejected, NodesFailed
from sparkops.node.docker import commands
from sparkops.operator.build.hub.headers import HubHeaders
from sparkops.operator.build.hub.pull import IMAGE, Hub, hub_order
from sparkops.operator.build.images import distribute, gated
from sparkops.operator.build.images.build import BuildOrder, Built, build_on_all, of_recipe
from sparkops.operator.build.images.delivery import CopiedImage
from sparkops.operator.build.render.context import build_context, mounts_wheels, render
from sparkops.operator.cli.named import load_fleet, load_recipe, read_token
from sparkops.operator.cli.options import DRY_RUN, JSON, NODES, RECIPE, WAIT
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import data_json, say
from sparkops.operator.fleet.connected import connect
from sparkops.units import shown_size


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

    Two builds always differ, so the image of a replica on several nodes is built on one and copied.

    Exit code 4 if an engine loads on a node.

    Example: sparkops build 122b-autoround --node spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet)
    order = make_order(loaded, fleet)
    ranks = loaded.serve.ranks > 1
    nodes = _nodes(loaded, fleet, node or (), once=once or ranks)
    once = len(nodes) > 1 and (once or ranks)
    if once:
        say(f"built once, and copied{': ranks must run the same content' if ranks else ''}: {', '.join(nodes)}")
    if dry_run:
        _show(order, nodes, once=once)
        if json:
            data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": dict.fromkeys(nodes)})
        return
    results: Mapping[str, Built | CopiedImage]
    source = None
    with _refusals(order, json=json), connect(fleet, nodes) as connected, progress() as report:
        if once:
            source, results = distribute.build_once(connected, order, report, wait)
        else:
            results = build_on_all(connected, order, report, wait)
    show_results(order.tag, source, results)
    if json:
        nodes_json = {name: _as_json(result, source) for name, result in results.items()}
        data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": nodes_json})


@contextmanager
def _refusals(order: BuildOrder, *, json: bool) -> Iterator[None]:
    """With --json, print the verdicts on a rejected image to stdout as well; the error goes to stderr."""
    try:
        yield
    except (ImageRejected, NodesFailed) as error:
        rejected = [cause for cause in getattr(error, "errors", (error,)) if isinstance(cause, ImageRejected)]
        if json and rejected:
            nodes = {cause.node: {"image": None, "built": False, "gates": cause.verdicts} for cause in rejected}
            data_json({"tag": order.tag, "inputs": order.context.digest, "nodes": nodes})
        raise


def _nodes(recipe: Recipe, fleet: Fleet, named: Sequence[str], *, once: bool) -> Sequence[str]:
    """Return the nodes that get the image; if one builds for all, it comes first."""
    default = recipe.nodes or list(fleet.nodes)
    if once and len(named) == 1:
        return [*named, *(name for name in default if name != named[0])]
    return named or default


def _show(order: BuildOrder, nodes: Sequence[str], *, once: bool) -> None:
    say(f"{order.tag} on {nodes[0] if once else ', '.join(nodes)}")
    say(f"  $ {commands.build(order.candidate, order.labels, order.context.build_args)}")
    if once:
        say(f"{order.tag} copied to the others from {nodes[0]} or a node that has it: missing layers only")


def show_results(tag: str, source: str | None, results: Mapping[str, Built | CopiedImage]) -> None:
    """Print what became of an image on each node. `source`: where copies came from."""
    for name, result in results.items():
        if isinstance(result, Built):
            change = "built" if result.new else "checked" if result.verdicts else "nothing to do"
            text = f"{change}: {tag}, {result.size_gib:.2f} GiB"
        else:
            change = f"copied from {source}" if result.sent else "nothing to do"
            text = f"{change}: {tag}, {shown_size(result.sent)} sent"
        say(f"{name}: {text}", fg="green")


def _as_json(result: Built | CopiedImage, source: str | None) -> dict[str, object]:
    if isinstance(result, Built):
        gates = [asdict(verdict) for verdict in result.verdicts]
        return {"image": result.image, "built": result.new, "from": None, "sent": 0, "gates": gates}
    return {"image": result.image, "built": False, "from": source, "sent": result.sent, "gates": []}


def make_order(recipe: Recipe, fleet: Fleet) -> BuildOrder:
    """Return the build of a recipe, from its templates, mods and inputs."""
    templates = assets.load_templates()
    inputs = assets.load_inputs(fleet, wheels=mounts_wheels(render(recipe, templates)))
    context = build_context(recipe, templates, assets.load_mods(), inputs)
    return of_recipe(recipe, context, assets.load_gate(), assets.load_parser(recipe.engine))


def make_hub(fleet: Fleet, token_file: Path | None, endpoint: str, *, replace: bool = False) -> Hub:
    """Return the settings of a download. Raises UsageError for an unreadable token or one sent unencrypted."""
    inputs, parent = assets.load_inputs(fleet, wheels=False), fleet.build.parent(IMAGE)
    order = hub_order(
        assets.load_templates(), assets.load_hub_packages(), inputs, parent, gated.of(fleet), fleet.build.agent_packages
    )
    return Hub(order, read_token(token_file), endpoint, replace)


def make_headers(fleet: Fleet, token_file: Path | None, endpoint: str) -> HubHeaders:
    """Return the hub that describes absent models, with the certificates of downloads. Raises UsageError as above."""
    certificates = assets.load_inputs(fleet, wheels=False).ca_certificates
    return HubHeaders(read_token(token_file), endpoint, tuple(content for _, content in certificates))
