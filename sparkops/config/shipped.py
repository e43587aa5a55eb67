"""Where templates/ and recipes/ are, beside the package in a checkout, inside it in a wheel; and the known recipes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol, overload

PACKAGE = Path(__file__).parent.parent
OWN = Path("recipes")
"""The operator's recipes, in the working directory."""
ARCHIVE = "shipped/files.json.xz"
"""Archive of a wheel in the package, written by hatch_build.py: texts of templates, guard and shipped locks by their
path in a checkout.

A wheel compresses each file alone; together, these take less than half the bytes.
"""


class ShippedFile(Protocol):
    """A file or directory of this copy of sparkops: a Path in a checkout, a PackedFile in a wheel."""

    @property
    def name(self) -> str: ...

    @property
    def stem(self) -> str: ...

    def __truediv__(self, name: str, /) -> ShippedFile: ...

    def __lt__(self, other: Any, /) -> bool: ...

    def glob(self, pattern: str, /) -> Iterable[ShippedFile]: ...

    def rglob(self, pattern: str, /) -> Iterable[ShippedFile]: ...

    def read_bytes(self) -> bytes: ...

    def read_text(self, encoding: str | None = None) -> str: ...


@dataclass(frozen=True, order=True)
class PackedFile:
    """A file or directory in the archive of a wheel."""

    path: PurePosixPath

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def stem(self) -> str:
        return self.path.stem

    def __truediv__(self, name: str) -> PackedFile:
        return PackedFile(self.path / name)

    def __str__(self) -> str:
        return str(self.path)

    def glob(self, pattern: str) -> Iterator[PackedFile]:
        """Yield the files whose whole path below this directory matches, as `Path.glob` does for these patterns."""
        depth = len(self.path.parts) + len(PurePosixPath(pattern).parts)
        return (file for file in self.rglob(pattern) if len(file.path.parts) == depth)

    def rglob(self, pattern: str) -> Iterator[PackedFile]:
        """Yield the files at any depth below this directory that match."""
        paths = (path for path in map(PurePosixPath, _archive()) if self.path in path.parents)
        return (PackedFile(path) for path in paths if path.relative_to(self.path).match(pattern))

    def read_bytes(self) -> bytes:
        return self.read_text().encode()

    def read_text(self, encoding: str | None = None) -> str:  # noqa: ARG002 - as of Path; an archive has texts
        """Return the text. Raises FileNotFoundError."""
        text = _archive().get(str(self.path))
        if text is None:
            raise FileNotFoundError(f"{self.path} is not in {PACKAGE / ARCHIVE}")
        return text


@overload
def directory(name: Literal["recipes"]) -> Path: ...


@overload
def directory(name: Literal["templates"]) -> ShippedFile: ...


def directory(name: str) -> Path | ShippedFile:
    """Return the directory `templates` or `recipes` of this copy of sparkops."""
    if not (PACKAGE / ARCHIVE).is_file():
        return PACKAGE.parent / name
    return PACKAGE / "shipped/recipes" if name == "recipes" else PackedFile(PurePosixPath(name))


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
    root = (PACKAGE / "shipped").resolve()
    place = file.resolve()
    text = _archive().get(place.relative_to(root).as_posix()) if place.is_relative_to(root) else None
    return None if text is None else text.encode()


def packed_package() -> dict[str, bytes]:
    """Return the modules of sparkops that a wheel has in its archive, by path in the package: those of the guard."""
    package = PurePosixPath(PACKAGE.name)
    paths = {path: PurePosixPath(path) for path in _archive()}
    inside = {path: name.relative_to(package) for path, name in paths.items() if name.is_relative_to(package)}
    return {name.as_posix(): _archive()[path].encode() for path, name in inside.items()}


@cache
def _archive() -> Mapping[str, str]:
    """Return the archive; empty in a checkout."""
    archive = PACKAGE / ARCHIVE
    texts: Mapping[str, str] = json.loads(lzma.decompress(archive.read_bytes())) if archive.is_file() else {}
    return texts
