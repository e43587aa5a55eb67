"""The inventory and recipes that a command line names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from sparkops.cli.options import Settings
from sparkops.config import inventory, recipe
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.config.shipped import known_recipes
from sparkops.errors import UsageError


def load_fleet(settings: Settings) -> Fleet:
    """Return the inventory that the global options name. Raises ConfigError, UsageError."""
    if not settings.inventory.exists():
        step = "Create one with `sparkops init`, or pass --inventory FILE."
        raise UsageError(f"inventory not found: {settings.inventory}", next_step=step)
    return inventory.load(settings.inventory)


def copy_targets(fleet: Fleet, recipe: Recipe, source: str, named: Sequence[str] | None) -> list[str]:
    """Return the nodes that get a copy: `named`, else those of the recipe, else all. Raises UsageError without one."""
    targets = [name for name in named or recipe.nodes or fleet.nodes if name != source]
    if not targets:
        raise UsageError(f"no node to copy to besides {source}", next_step="Name others with --to.")
    return targets


def load_recipe(named: str, fleet: Fleet, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a file or name, with these KEY=VALUE changes. Raises ConfigError, UsageError."""
    return recipe.load(find_recipe(named), fleet.nodes, changes)


def find_recipe(named: str) -> Path:
    """Return the file of a recipe: a path, or a name in ./recipes or among those of sparkops. Raises UsageError."""
    if Path(named).is_file():
        return Path(named)
    known = known_recipes()
    name = Path(named).name.removesuffix(".yaml")
    if name in known and len(Path(named).parts) <= 2:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    step = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"recipe not found: {named}", next_step=f"{step}`sparkops recipes` lists all.")
