"""A recipe and its template become the text of a Dockerfile. A value can never add a line or an argument."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError
from sparkops.render.sandbox import fill


def render(recipe: Recipe, templates: Mapping[str, str]) -> str:
    """The Dockerfile of a recipe. Raises ConfigError with the template's file and line."""
    name = f"{recipe.image.template}.Dockerfile.j2"
    if name not in templates:
        known = ", ".join(sorted(key.removesuffix(".Dockerfile.j2") for key in templates if "Dockerfile" in key))
        raise ConfigError(Path(f"recipes/{recipe.name}.yaml"), 1, "image.template", f"expected one of: {known}")
    return fill(name, templates, recipe=recipe)
