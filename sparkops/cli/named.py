"""Recipes by file or name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from sparkops.config import recipe
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.config.shipped import known_recipes
from sparkops.errors import UsageError


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
