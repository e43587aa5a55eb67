"""The verb recipe lock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from sparkops.config import assets, shipped
from sparkops.config.lock import Lock, Parent, not_locked
from sparkops.config.recipe import Recipe
from sparkops.config.recipe_file import load_unlocked, lock_file, lock_text, read_lock
from sparkops.errors import UsageError
from sparkops.names import counted
from sparkops.node.member import Member
from sparkops.node.progress import OnEvent
from sparkops.operator.build.images.build import of_recipe
from sparkops.operator.build.lock import locking
from sparkops.operator.build.lock.finished import Difference, differences
from sparkops.operator.build.render.context import build_context
from sparkops.operator.cli.named import find_recipe, load_fleet
from sparkops.operator.cli.options import JSON, RECIPE, YES
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import confirm, data_json, say, write
from sparkops.operator.fleet.connected import connect


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
    yes: YES = False,
    json: JSON = False,
) -> None:
    """Pin base image, packages, mods and models

    Writes NAME.lock beside the recipe, with their digests and hashes.

    An up-to-date lock is not changed. If the recipe has changed, versions that still match are kept.

    --update of a finished image (`image.use` with a tag) first shows what the newer digest changes: versions of vLLM,
    torch, FlashInfer, NCCL and CUDA, architecture, size, date. Without confirmation the lock stays as it is.

    Example: sparkops recipe lock 122b-autoround --node spark-1
    """
    fleet, recipe_file = load_fleet(context.obj), find_recipe(recipe)
    file = lock_file(recipe_file)
    unlocked = load_unlocked(recipe_file, fleet.nodes)
    before = read_lock(file)
    inputs, gate = assets.load_inputs(fleet), assets.load_gate()
    files = locking.BuildFiles(assets.load_templates(), assets.load_mods(), inputs, gate)
    if before and not update and locking.fits(before, unlocked, files):
        say(f"{file} is up to date")
        _show(before, file, json=json)
        return
    if shipped.packed(recipe_file) is not None:
        step = f"Write a recipe with `extends: {unlocked.name}` to recipes/mine.yaml, then: sparkops recipe lock mine"
        raise UsageError(f"{unlocked.name} is a recipe of sparkops: an update would remove its lock", next_step=step)
    name = node or (unlocked.nodes or list(fleet.nodes))[0]
    with connect(fleet, [name]) as connected:
        member = connected.members[name]
        with progress() as report:
            old = before.parent if before else None
            parent = locking.resolve_parent(member, unlocked, old, report, update=update)
            changed = _changed(member, unlocked, old, parent, report)
        for difference in changed:
            say(f"{parent.name}: {difference}")
        if before and changed and not confirm(f"Take the newer digest of {parent.name}?", yes=yes):
            say(f"{file} was not changed", fg="yellow")
            _show(before, file, changed, taken=False, json=json)
            return
        with progress() as report:
            kept = None if update else before
            resolved = locking.lock_on(member, unlocked, files, parent, kept, str(int(time.time())), report)
            if build:
                locked = unlocked.with_lock(resolved)
                inside = build_context(locked, files.templates, files.mods, files.inputs)
                order = of_recipe(locked, inside, files.gate, assets.load_parser(locked.engine))
                contents = locking.built_contents(connected, member, locked, order, files.gate, report)
                resolved = resolved.model_copy(update={"contents": contents})
    write(file, lock_text(unlocked.name, resolved))
    say(f"wrote {file}", fg="green")
    _show(resolved, file, changed, json=json)


def _changed(
    member: Member, recipe: Recipe, old: Parent | None, new: Parent, report: OnEvent
) -> tuple[Difference, ...]:
    """Return what another digest of the recipe's finished image changes; nothing for the same one, or a first lock."""
    if old is None or not recipe.image.use or old.name != new.name or old.digest in (None, new.digest):
        return ()
    return differences(locking.known_parent(member, old, report), new)


def _show(lock: Lock, file: Path, changed: Sequence[Difference] = (), *, taken: bool = True, json: bool) -> None:
    """Print what is locked and what is not. `changed`: what a newer digest changes, `taken` or not."""
    unlocked = not_locked(lock)
    parts = (counted(len(lock.packages), "package"), counted(len(lock.mods), "file") + " of mods")
    say(", ".join((*parts, counted(len(lock.models), "model"))))
    for text in unlocked:
        say(f"not locked: {text}")
    if json:
        rows = [{**asdict(difference), "same": difference.same} for difference in changed]
        update = {"changes": rows, "taken": taken} if changed else None
        data_json({"file": str(file), "lock": lock.model_dump(mode="json"), "not_locked": unlocked, "update": update})
