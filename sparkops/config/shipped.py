"""Where templates/ and recipes/ are, beside the package in a checkout, inside it in a wheel; and the known recipes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
OWN = Path("recipes")
"""The operator's recipes, in the working directory."""
LOCKS = "locks.json.xz"
"""Archive of the shipped locks in a wheel, written by hatch_build.py: their text by path below `recipes`.

Locks share most of their lines, and a wheel compresses each file alone.
"""


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


def replaced(file: Path) -> Path | None:
    """Return the shipped recipe that a recipe in a folder of ./recipes replaces by its name; None for any other file.

    A file in ./recipes itself replaces one on purpose; a folder may be a checkout of something else.
    """
    in_folder = file.parent.parent == OWN
    shipped = recipes().get(file.stem) if in_folder else None
    return shipped if shipped and shipped.resolve() != file.resolve() else None


def _inside(root: Path) -> dict[str, Path]:
    """Return the recipes of a directory and its folders by name. Of two with one name, the one outside a folder wins.

    Reads one level of folders: deeper files belong to a checkout of something else.
    """
    files = [*sorted(root.glob("*/*.yaml")), *sorted(root.glob("*.yaml"))]
    return dict(sorted({file.stem: file for file in files}.items()))


def packed_lock(file: Path) -> bytes | None:
    """Return the text of the lock that would be `file` in a checkout; None if the wheel has none."""
    root = (PACKAGE / "shipped/recipes").resolve()
    place = file.resolve()
    text = _locks().get(place.relative_to(root).as_posix()) if place.is_relative_to(root) else None
    return None if text is None else text.encode()


@cache
def _locks() -> Mapping[str, str]:
    archive = PACKAGE / "shipped" / LOCKS
    locks: Mapping[str, str] = json.loads(lzma.decompress(archive.read_bytes())) if archive.is_file() else {}
    return locks
