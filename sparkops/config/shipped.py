"""Where templates/ and recipes/ are, beside the package in a checkout, in archives in a wheel; the known recipes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

PACKAGE = Path(__file__).parent.parent
OWN = Path("recipes")
"""The operator's recipes, in the working directory."""
SHIPPED = "shipped"
"""In a wheel, the directory of the archives in the package. hatch_build.py writes them."""
RECIPES, PROGRAMS = "recipes", "programs"
"""The archives: recipes with their locks; templates and the guard, which nodes and images run."""


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
        paths = (path for path in map(PurePosixPath, archive(PROGRAMS)) if self.path in path.parents)
        return (PackedFile(path) for path in paths if path.relative_to(self.path).match(pattern))

    def read_bytes(self) -> bytes:
        return self.read_text().encode()

    def read_text(self, encoding: str | None = None) -> str:  # noqa: ARG002 - as of Path; an archive has texts
        """Return the text. Raises FileNotFoundError."""
        text = archive(PROGRAMS).get(str(self.path))
        if text is None:
            raise FileNotFoundError(f"{self.path} is not in the archive {PROGRAMS} of {PACKAGE}")
        return text


def directory(name: str) -> ShippedFile:
    """Return the directory `templates` of this copy of sparkops."""
    return PackedFile(PurePosixPath(name)) if archive(PROGRAMS) else PACKAGE.parent / name


@cache
def recipes() -> Mapping[str, Path]:
    """Return the recipes that come with sparkops, by name and in its order: those of every folder of recipes/.

    In a wheel, these paths name texts of an archive, which `config.files` reads.
    """
    if texts := archive(RECIPES):
        return _by_name(PACKAGE / SHIPPED / path for path in texts if path.endswith(".yaml"))
    return _inside(PACKAGE.parent / "recipes")


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
    return _by_name([*root.glob("*/*.yaml"), *root.glob("*.yaml")])


def _by_name(files: Iterable[Path]) -> dict[str, Path]:
    deepest_first = sorted(files, key=lambda file: (-len(file.parts), file))
    return dict(sorted({file.stem: file for file in deepest_first}.items()))


def packed(file: Path) -> bytes | None:
    """Return the recipe or lock that would be `file` if archives were directories; None without one."""
    texts = archive(RECIPES)
    inside = (PACKAGE / SHIPPED).resolve()
    if not texts or not (place := file.resolve()).is_relative_to(inside):
        return None
    text = texts.get(place.relative_to(inside).as_posix())
    return None if text is None else text.encode()


def packed_package() -> dict[str, bytes]:
    """Return the modules of sparkops that a wheel has in an archive, by path in the package: those of the guard."""
    package = f"{PACKAGE.name}/"
    modules = {path: text for path, text in archive(PROGRAMS).items() if path.startswith(package)}
    return {path.removeprefix(package): text.encode() for path, text in modules.items()}


@cache
def archive(name: str) -> Mapping[str, str]:
    """Return an archive of this wheel: texts by their path in a checkout; empty in a checkout."""
    file = PACKAGE / SHIPPED / f"{name}.json.xz"
    texts: Mapping[str, str] = json.loads(lzma.decompress(file.read_bytes())) if file.is_file() else {}
    return texts
