"""A recipe and its template become the text of a Dockerfile. A value can never add a line or an argument."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparkops.config.assets import TEMPLATE
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError
from sparkops.render.sandbox import fill

MOUNT = "source=wheels,"


def mounts_wheels(dockerfile: str) -> bool:
    """Return whether a build reads the wheels of the inventory."""
    return MOUNT in dockerfile


def render(recipe: Recipe, templates: Mapping[str, str]) -> str:
    """The Dockerfile of a recipe. Raises ConfigError with the template's file and line."""
    name = f"{recipe.image.template}{TEMPLATE}"
    if name not in templates:
        known = ", ".join(sorted(key.removesuffix(TEMPLATE) for key in templates if key.endswith(TEMPLATE)))
        raise ConfigError(Path(f"recipes/{recipe.name}.yaml"), 1, "image.template", f"expected one of: {known}")
    return fill(name, templates, recipe=recipe)
