"""The verb lock."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from sparkops.cli.inventory import load_fleet
from sparkops.cli.named import find_recipe
from sparkops.cli.options import JSON, RECIPE
from sparkops.cli.progress import progress
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data_json, say, write
from sparkops.config import assets
from sparkops.config.lock import Lock, lock_file, lock_text, not_locked, read_lock
from sparkops.config.recipe import load_unlocked
from sparkops.images.build import build_on, of_recipe
from sparkops.lock import locking
from sparkops.nodes.connected import connect
from sparkops.render.context import build_context


def lock(
    context: typer.Context,
    recipe: RECIPE,
    update: Annotated[
        bool, typer.Option("--update", help="Resolve the newest versions, even if the lock fits")
    ] = False,
    node: Annotated[
        str | None,
        typer.Option("--node", "-n", metavar="NODE", help="Node to resolve and build on; default: the first"),
    ] = None,
    build: Annotated[
        bool, typer.Option(help="Build from the lock, and add the versions that the image reports")
    ] = True,
    json: JSON = False,
) -> None:
    """Pin base image, packages, mods and models

    Writes NAME.lock beside the recipe, with their digests and hashes.

    A lock that fits the recipe is left alone. Where the recipe has changed, versions that still fit are kept.

    Example: sparkops lock 122b-autoround --node spark-1
    """
    settings: Settings = context.obj
    fleet, file = load_fleet(settings), find_recipe(recipe)
    place = lock_file(file)
    wanted = load_unlocked(file, fleet.nodes)
    before = read_lock(place)
    shelf = locking.BuildFiles(
        assets.load_templates(), assets.load_mods(), assets.load_inputs(fleet), assets.load_gate()
    )
    if before and not update and locking.fits(before, wanted, shelf):
        say(f"{place} is up to date")
        _tell(before, str(place), json=json)
        return
    where = node or (wanted.nodes or list(fleet.nodes))[0]
    with connect(fleet, [where]) as connected, progress() as tell:
        member = connected.members[where]
        made = locking.lock_on(member, wanted, shelf, None if update else before, str(int(time.time())), tell)
        if build:
            held = wanted.with_lock(made)
            order = of_recipe(held, build_context(held, shelf.templates, shelf.mods, shelf.inputs), shelf.gate)
            build_on(member, order, tell)
            made = made.model_copy(update={"contents": locking.contents(member, held, order, shelf)})
    write(place, lock_text(wanted.name, made))
    say(f"wrote {place}", fg="green")
    _tell(made, str(place), json=json)


def _tell(lock: Lock, place: str, *, json: bool) -> None:
    """Print what is locked and what is not."""
    open_ = not_locked(lock)
    say(f"{len(lock.packages)} packages, {len(lock.mods)} files of mods, {len(lock.models)} models")
    for each in open_:
        say(f"not locked: {each}")
    if json:
        data_json({"file": place, "lock": lock.model_dump(mode="json"), "not_locked": open_})
