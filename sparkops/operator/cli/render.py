"""The verb recipe render."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sparkops.config import assets, files
from sparkops.config.recipe_file import load
from sparkops.config.shipped import known_recipes
from sparkops.errors import SparkopsError, UsageError
from sparkops.names import GATEWAY, GUARD, counted
from sparkops.operator.build.gateway.image import gateway_dockerfile
from sparkops.operator.build.guard.image import guard_dockerfile
from sparkops.operator.build.hub.pull import HUB, hub_dockerfile
from sparkops.operator.build.render import context
from sparkops.operator.cli.named import find_recipe
from sparkops.operator.cli.terminal import say, write


def render(
    recipe: Annotated[list[str] | None, typer.Argument(metavar="RECIPE", help="Files or names of recipes")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Render every recipe, the gateway, the guard and the hub")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a file differs")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIRECTORY", help="Output directory")] = Path(
        "Dockerfiles"
    ),
) -> None:
    """Render recipes to Dockerfiles

    Writes Dockerfiles/NAME.Dockerfile. Refuses one of which a stage lacks the timeout of uv or the torch of the recipe,
    or has a secret.

    Exit code 1 if --check finds a difference.

    Example: sparkops recipe render 122b-autoround
    """
    if all_ and recipe:
        raise UsageError("--all: not with RECIPE", next_step="Leave out one of them.")
    chosen = list(known_recipes().values()) if all_ else [find_recipe(named) for named in recipe or ()]
    if not chosen:
        raise UsageError("nothing to render", next_step="Pass recipes or --all.")
    texts = _dockerfiles(chosen, agents=all_)
    stale = []
    for name, text in texts.items():
        target = output / f"{name}.Dockerfile"
        if target.is_file() and files.text(target, errors="replace") == text:
            continue
        stale.append(target)
        if not check:
            write(target, text)
            say(f"wrote {target}")
    if check and stale:
        step = "sparkops recipe render --all"
        raise SparkopsError(f"out of date: {', '.join(map(str, stale))}", next_step=step)
    files_ = counted(len(texts), "Dockerfile")
    say(f"{files_} up to date" if not stale else f"{len(stale)} of {files_} written")


def _dockerfiles(recipes: Sequence[Path], *, agents: bool) -> dict[str, str]:
    """Return the text of each Dockerfile by name: recipes, and with `agents` gateway, guard and hub."""
    templates = assets.load_templates()
    texts = {loaded.name: context.render(loaded, templates) for loaded in map(load, recipes)}
    dockerfiles = {GUARD: guard_dockerfile, GATEWAY: gateway_dockerfile, HUB: hub_dockerfile}
    beside = {name: render(templates) for name, render in dockerfiles.items()} if agents else {}
    return {**beside, **texts}
