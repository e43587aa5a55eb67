"""recipes, show, render."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from sparkops.cli.settings import find_recipe, known_recipes
from sparkops.cli.terminal import data, data_json, say, write
from sparkops.errors import SparkopsError, UsageError


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(recipes)
    app.command()(show)
    app.command()(render)


def recipes(json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """List the recipes: those in ./recipes, and those that come with sparkops."""
    from sparkops.config import recipe

    found = [recipe.load(file) for file in known_recipes().values()]
    if json:
        data_json({"recipes": [each.model_dump(mode="json") for each in found]})
        return
    for each in found:
        speed = f"{each.expected.tok_s:g} tok/s" if each.expected and each.expected.tok_s else "-"
        data(f"{each.name:<28} {each.memory.claim_gib:>6g} GiB  {speed:>12}  {each.description}")


def show(
    recipe: Annotated[str, typer.Argument(help="A recipe's file or name.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show a recipe with all its defaults."""
    import yaml

    from sparkops.config import recipe as recipes_module

    values = recipes_module.load(find_recipe(recipe)).model_dump(mode="json", exclude_none=True)
    if json:
        data_json(values)
    else:
        data(yaml.safe_dump(values, sort_keys=False, width=110).rstrip())


def render(
    recipe: Annotated[list[str] | None, typer.Argument(help="Recipes by file or name.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every recipe, the gateway, the guard and the hub.")] = False,
    check: Annotated[bool, typer.Option(help="Write nothing; fail if a file differs.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the Dockerfiles.")] = Path("Dockerfiles"),
) -> None:
    """Render recipes to Dockerfiles/NAME.Dockerfile."""
    files = list(known_recipes().values()) if all_ else [find_recipe(named) for named in recipe or ()]
    if not files:
        raise UsageError("nothing to render", next_step="Name recipes, or give --all.")
    texts = _dockerfiles(files, agents=all_)
    stale = []
    for name, text in texts.items():
        target = output / f"{name}.Dockerfile"
        if target.is_file() and target.read_text() == text:
            continue
        stale.append(target)
        if not check:
            write(target, text)
            say(f"wrote {target}")
    if check and stale:
        step = "sparkops render --all"
        raise SparkopsError(f"not as rendered: {', '.join(map(str, stale))}", next_step=step)
    say(f"{len(texts)} Dockerfiles are as rendered" if not stale else f"{len(stale)} of {len(texts)} written")


def _dockerfiles(files: Sequence[Path], *, agents: bool) -> dict[str, str]:
    """The text of each Dockerfile by its name: of recipes, and of what runs beside them."""
    from sparkops.config import assets, recipe
    from sparkops.render import dockerfile, gateway, guard, hub

    templates = assets.load_templates()
    texts = {loaded.name: dockerfile.render(loaded, templates) for loaded in map(recipe.load, files)}
    beside = {each.NAME: each.dockerfile(templates) for each in (gateway, guard, hub)}
    return {**(beside if agents else {}), **texts}
