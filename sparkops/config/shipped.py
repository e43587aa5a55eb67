"""Where templates/ and recipes/ are, beside the package in a checkout, inside it in a wheel; and the known recipes."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent.parent
OWN = Path("recipes")
"""The operator's recipes, in the working directory."""


def directory(name: str) -> Path:
    """Return the directory `templates` or `recipes` of this copy of sparkops."""
    inside = PACKAGE / "shipped" / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def recipes() -> dict[str, Path]:
    """Return the recipes that come with sparkops, by name and in its order: those of every folder of recipes/."""
    return _inside(directory("recipes"))


def known_recipes() -> dict[str, Path]:
    """Return the recipes by name, in its order: those of sparkops, and those in ./recipes, which take precedence."""
    return dict(sorted({**recipes(), **_inside(OWN)}.items()))


def _inside(root: Path) -> dict[str, Path]:
    """Return the recipes of a directory and its folders by name. Of two with one name, the one outside a folder wins.

    One level of folders: what lies deeper is somebody else's checkout.
    """
    files = [*sorted(root.glob("*/*.yaml")), *sorted(root.glob("*.yaml"))]
    return dict(sorted({file.stem: file for file in files}.items()))
