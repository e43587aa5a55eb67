"""lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import Settings, find_recipe
from sparkops.cli.terminal import data_json, progress, say, write

if TYPE_CHECKING:
    from sparkops.config.lock import Lock


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(lock)


def lock(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="A recipe's file or name.")],
    update: Annotated[bool, typer.Option("--update", help="Take what is newest, also where a lock is right.")] = False,
    node: Annotated[str | None, typer.Option("--node", "-n", help="Where to ask and build; else the first.")] = None,
    build: Annotated[
        bool, typer.Option(help="Build from the lock, and write down what the image says of its torch.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Write NAME.lock beside a recipe: the digest of its base, the hashes of its packages, its mods and models.

    A lock that fits the recipe is left alone. Where the recipe has changed, versions that still fit are kept.
    """
    import time

    from sparkops.config import assets
    from sparkops.config import lock as locks
    from sparkops.config import recipe as recipes
    from sparkops.fleet import build as building
    from sparkops.fleet import locking
    from sparkops.fleet.connected import connect
    from sparkops.render.context import context as make_context

    settings: Settings = context.obj
    fleet, file = settings.fleet(), find_recipe(recipe)
    place = locks.file_of(file)
    wanted = recipes.load_unlocked(file, fleet.nodes)
    before = locks.read(place)
    shelf = locking.Shelf(assets.load_templates(), assets.load_mods(), assets.load_inputs(fleet), assets.load_gate())
    if before and not update and locking.fits(before, wanted, shelf):
        say(f"nothing to do: {place} is of this recipe")
        _tell(before, str(place), json=json)
        return
    where = node or (wanted.nodes or list(fleet.nodes))[0]
    with connect(fleet, [where]) as connected, progress() as tell:
        member = connected.members[where]
        made = locking.lock_on(member, wanted, shelf, None if update else before, str(int(time.time())), tell)
        if build:
            held = wanted.held_to(made)
            order = building.of_recipe(held, make_context(held, shelf.templates, shelf.mods, shelf.inputs), shelf.gate)
            building.build_on(member, order, tell)
            made = made.model_copy(update={"contents": locking.contents(member, held, order, shelf)})
    write(place, locks.text(wanted.name, made))
    say(f"wrote {place}", fg="green")
    _tell(made, str(place), json=json)


def _tell(lock: Lock, place: str, *, json: bool) -> None:
    """What is locked, and what is not."""
    from sparkops.config.lock import not_locked

    open_ = not_locked(lock)
    say(f"{len(lock.packages)} packages, {len(lock.mods)} files of mods, {len(lock.models)} models")
    for each in open_:
        say(f"not locked: {each}")
    if json:
        data_json({"file": place, "lock": lock.model_dump(mode="json"), "not_locked": open_})
