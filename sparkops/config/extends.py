"""A recipe that says only what differs from another one: `extends: NAME`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sparkops.config import shipped, source
from sparkops.config.source import Location, Source, dotted
from sparkops.errors import ConfigError

KEY = "extends"
OWN = frozenset({KEY, "name", "description", "expected", "verified"})
"""What a recipe never has from another one: what was measured or run of that one says nothing of this one."""


@dataclass
class Merged(Source):
    """The data of several files. `files` has where a value stands that is not in the first of them."""

    files: dict[Location, Path] = field(default_factory=dict)

    def fail(self, where: Location, problem: str) -> ConfigError:
        """The error with the file and the line in which the value, or the nearest one around it, was written."""
        near = self.nearest(where)
        return ConfigError(self.files.get(near, self.file), self.lines.get(near, 1), dotted(where), problem)


def read(file: Path, below: tuple[Path, ...] = ()) -> Source:
    """Read a recipe's file over the one that it extends, and that over its own. Raises ConfigError.

    Mappings are merged; any other value replaces the one from below, and null takes a key away.
    """
    child = source.read(file)
    name = child.data.get(KEY) if isinstance(child.data, dict) else None
    if not isinstance(name, str):
        return child
    parent_file = _find(child, name)
    chain = (*below, file.resolve())
    if parent_file.resolve() in chain:
        names = " extends ".join(ancestor.stem for ancestor in (*chain, parent_file))
        raise child.fail((KEY,), f"a circle: {names}")
    return _over(child, read(parent_file, chain))


def _find(child: Source, name: str) -> Path:
    """Beside the recipe, or among those that come with sparkops."""
    directories = (child.file.parent, shipped.directory("recipes"))
    candidates = (directory / f"{name}.yaml" for directory in directories if Path(name).name == name)
    file = next((candidate for candidate in candidates if candidate.is_file()), None)
    if file is None:
        raise child.fail((KEY,), f"recipe {name!r} not found beside this one or among those of sparkops")
    return file


def _over(child: Source, parent: Source) -> Merged:
    given = parent.data if isinstance(parent.data, dict) else {}
    kept = {key: value for key, value in given.items() if key not in OWN}
    beneath = {where: line for where, line in parent.lines.items() if where and where[0] in kept}
    files = parent.files if isinstance(parent, Merged) else {}
    return Merged(
        child.file,
        merge(kept, child.data),
        lines=beneath | child.lines,
        files={where: files.get(where, parent.file) for where in beneath if where not in child.lines},
    )


def merge(parent: object, child: object) -> object:
    """Merge `child` over `parent`: mappings key by key; null removes a key; everything else replaces."""
    if not isinstance(parent, dict) or not isinstance(child, dict):
        return child
    merged = {**parent}
    for key, value in child.items():
        if value is None and key in parent:
            del merged[key]
        else:
            merged[key] = merge(parent.get(key), value)
    return merged
