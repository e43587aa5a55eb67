"""The inventory, recipes and token files that a command line names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sparkops.config import files, inventory, recipe_file, shipped
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.config.shipped import known_recipes
from sparkops.errors import ConfigError, UsageError
from sparkops.names import did_you_mean
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.terminal import say
from sparkops.operator.deploy import leads
from sparkops.operator.fleet.connected import Connected


def load_fleet(settings: Settings) -> Fleet:
    """Return the inventory that the global options name. Raises ConfigError, UsageError."""
    if not settings.inventory.exists():
        step = "Create one with `sparkops init`, or pass --inventory FILE."
        raise UsageError(f"inventory not found: {settings.inventory}", next_step=step)
    if settings.inventory.is_dir():
        raise UsageError(f"{settings.inventory} is a directory", next_step="Pass a file with --inventory.")
    return inventory.load(settings.inventory)


def copy_targets(fleet: Fleet, recipe: Recipe, source: str, named: Sequence[str] | None) -> list[str]:
    """Return the nodes that get a copy: `named`, else those of the recipe, else all. Raises UsageError without one."""
    targets = [name for name in named or recipe.nodes or fleet.nodes if name != source]
    if not targets:
        raise UsageError(f"no node to copy to besides {source}", next_step="Name others with --to.")
    return targets


def load_recipe(named: str, fleet: Fleet, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a file or name, with these KEY=VALUE changes. Raises ConfigError, UsageError."""
    file = find_recipe(named)
    recipe, known = recipe_file.load(file, fleet.nodes, changes), known_recipes().get(file.stem)
    return recipe if known and known.resolve() == file.resolve() else recipe.named(str(file))


def require_service(connected: Connected, service: str) -> None:
    """Raise UsageError with the nearest names unless the nodes know a service of this name."""
    known, unread = leads.known_services(connected)
    if service in known:
        return
    if of := _service_of_recipe(service):
        problem, step = f"{service} is a recipe; its service is {of}", did_you_mean(of, known & {of})
    else:
        problem, step = f"no such service: {service}", did_you_mean(service, known)
    if unread:
        problem += f"; not read: {', '.join(unread)}"
    raise UsageError(problem, next_step=f"{step}`sparkops status` lists all.")


def _service_of_recipe(name: str) -> str:
    """Return the service of the recipe of this name; empty without one, or for one that cannot be read."""
    file = known_recipes().get(name)
    try:
        return recipe_file.load_unlocked(file).service if file else ""
    except ConfigError:  # the name that was passed is not that of a service in any case
        return ""


def find_recipe(named: str) -> Path:
    """Return the file of a recipe: a path, or a name in ./recipes or among those of sparkops. Raises UsageError.

    A path into recipes/ is also that of a shipped recipe, with its folder or without: recipes/NAME.yaml.
    """
    if Path(named).is_file():
        return Path(named)
    if "/" in named and (file := Path(f"{named}.yaml")).is_file():
        return file
    known = known_recipes()
    name = Path(named).name.removesuffix(".yaml")
    parts = Path(named).parts
    if name in known and (len(parts) <= 2 or parts[-2] == known[name].parent.name != shipped.OWN.name):
        if replaced := shipped.replaced(known[name]):
            say(f"{known[name]} is used in place of the recipe {name} of sparkops, {replaced}", fg="yellow")
        return known[name]
    if any(_service_of_recipe(recipe) == name for recipe in known):
        raise UsageError(f"{name} is a service, expected a recipe", next_step=f"sparkops recipes {name}")
    if (beside := Path(f"{name}.yaml")).is_file():
        step = f"Move {beside} to recipes/, or name it as a file: ./{beside}"
        raise UsageError(f"recipe not found: {named}", next_step=step)
    problem = f"{named} is a directory, expected a recipe" if Path(named).is_dir() else f"recipe not found: {named}"
    raise UsageError(problem, next_step=f"{did_you_mean(name, known)}`sparkops recipes` lists all.")


def read_token(file: Path | None) -> str:
    """Return the token in a file; empty without a file. Raises UsageError for one that others can read."""
    if file is None:
        return ""
    try:
        mode, text = file.stat().st_mode, files.text(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise UsageError(f"{file} cannot be read: {reason}") from None
    if mode & files.OTHERS:
        raise UsageError(f"{file} is readable by other users", next_step=f"chmod 600 {file}")
    if len(text.split()) != 1:
        raise UsageError(f"{file}: expected one token")
    return text
