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
    own = source.read(file)
    name = own.data.get(KEY) if isinstance(own.data, dict) else None
    if not isinstance(name, str):
        return own
    parent_file = _find(own, name)
    chain = (*below, file.resolve())
    if parent_file.resolve() in chain:
        names = " extends ".join(each.stem for each in (*chain, parent_file))
        raise own.fail((KEY,), f"a circle: {names}")
    return _over(own, read(parent_file, chain))


def _find(own: Source, name: str) -> Path:
    """Beside the recipe, or among those that come with sparkops."""
    directories = (own.file.parent, shipped.directory("recipes"))
    found = (directory / f"{name}.yaml" for directory in directories if Path(name).name == name)
    file = next((each for each in found if each.is_file()), None)
    if file is None:
        raise own.fail((KEY,), f"there is no recipe {name!r} beside this one, nor one that comes with sparkops")
    return file


def _over(own: Source, parent: Source) -> Merged:
    given = parent.data if isinstance(parent.data, dict) else {}
    kept = {key: value for key, value in given.items() if key not in OWN}
    beneath = {where: line for where, line in parent.lines.items() if where and where[0] in kept}
    files = parent.files if isinstance(parent, Merged) else {}
    return Merged(
        own.file,
        merge(kept, own.data),
        lines=beneath | own.lines,
        files={where: files.get(where, parent.file) for where in beneath if where not in own.lines},
    )


def merge(parent: object, own: object) -> object:
    """`own` over `parent`: mappings key by key, null takes a key away, everything else replaces."""
    if not isinstance(parent, dict) or not isinstance(own, dict):
        return own
    merged = {**parent}
    for key, value in own.items():
        if value is None and key in parent:
            del merged[key]
        else:
            merged[key] = merge(parent.get(key), value)
    return merged
