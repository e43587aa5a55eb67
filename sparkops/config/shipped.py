"""Where templates/ and recipes/ are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def directory(name: str) -> Path:
    """The directory `templates` or `recipes` that belongs to this copy of sparkops."""
    inside = PACKAGE / "shipped" / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def known_recipes() -> dict[str, Path]:
    """The recipes by name, in order: those that come with sparkops, and those in ./recipes, which go before."""
    files = [*directory("recipes").glob("*.yaml"), *Path("recipes").glob("*.yaml")]
    return dict(sorted({file.stem: file for file in files}.items()))
