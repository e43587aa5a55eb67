"""Where templates/ and recipes/ are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def directory(name: str) -> Path:
    """Return the directory `templates` or `recipes` of this copy of sparkops."""
    inside = PACKAGE / "shipped" / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def known_recipes() -> dict[str, Path]:
    """Return the recipes by name, in order: those of sparkops, and those in ./recipes, which take precedence."""
    files = [*directory("recipes").glob("*.yaml"), *Path("recipes").glob("*.yaml")]
    return dict(sorted({file.stem: file for file in files}.items()))
