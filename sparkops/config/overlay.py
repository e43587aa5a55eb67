"""Values of a recipe over those of another one: `extends: NAME`, and `--set KEY=VALUE` over both."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sparkops.config import shipped, source
from sparkops.config.source import Source
from sparkops.errors import UsageError
from sparkops.names import did_you_mean

KEY = "extends"
OWN = frozenset({KEY, "name", "description", "expected", "verified"})
"""Keys that a recipe never inherits: what was measured or run of the other one does not hold for this one."""
SET = "--set"
ENV = ("serve", "env")
SHORT = {"env": ENV, "args": ("serve", "args")}
"""Short forms in `--set`: env.NAME is serve.env.NAME."""


def read(file: Path, children: tuple[Path, ...] = ()) -> Source:
    """Read a recipe's file over the one that it extends, and that over its own. Raises ConfigError.

    Mappings are merged; any other value replaces the inherited one, and null removes a key.
    """
    child = source.read(file)
    name = child.data.get(KEY) if isinstance(child.data, dict) else None
    if not isinstance(name, str):
        return child
    parent_file = _find(child, name)
    chain = (*children, file.resolve())
    if parent_file.resolve() in chain:
        names = " extends ".join(recipe.stem for recipe in (*chain, parent_file))
        raise child.fail((KEY,), f"circular: {names}")
    return _over(child, read(parent_file, chain))


def _find(child: Source, name: str) -> Path:
    """Return the recipe's file beside the child, in the directory around its folder, or among the shipped recipes."""
    folder = child.file.parent
    around = [folder.parent] if folder.parent.name == shipped.OWN.name else []
    candidates = (directory / f"{name}.yaml" for directory in (folder, *around) if Path(name).name == name)
    file = next((candidate for candidate in candidates if candidate.is_file()), shipped.recipes().get(name))
    if file is None:
        error = child.fail((KEY,), f"recipe {name!r} not found in this directory or among the shipped recipes")
        beside = (found.stem for directory in (folder, *around) for found in directory.glob("*.yaml"))
        error.next_step = did_you_mean(name, {*beside, *shipped.recipes()} - {child.file.stem}).strip()
        raise error
    return file


def _over(child: Source, parent: Source) -> Source:
    data = parent.data if isinstance(parent.data, dict) else {}
    inherited = {key: value for key, value in data.items() if key not in OWN}
    lines = {where: line for where, line in parent.lines.items() if where and where[0] in inherited}
    return Source(
        child.file,
        merge(inherited, child.data),
        lines=lines | child.lines,
        files={where: parent.files.get(where, parent.file) for where in lines if where not in child.lines},
        bases=(parent.file, *parent.bases),
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


def place(change: str) -> tuple[str, ...]:
    """Return the key of a KEY=VALUE as its parts, without short forms."""
    first, _, rest = change.partition("=")[0].partition(".")
    return (*SHORT.get(first, (first,)), *([] if not rest else [rest] if first in SHORT else rest.split(".")))


def apply(target: Source, changes: Iterable[str]) -> None:
    """Set each KEY=VALUE in the data, before it is checked. Raises UsageError, ConfigError."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not all(key.split(".")):
            raise UsageError(f"{SET} {change}: expected KEY=VALUE, such as env.NAME=x or swap.bake_s=10")
        if "-" in key.split(".")[0]:
            problem = f"{SET} {change}: a recipe has no such key"
            raise UsageError(problem, next_step=f"For a flag of the engine: {SET} args.{change}")
        _put(target, place(change), text, Path(f"{SET} {key}"))


def _put(target: Source, path: tuple[str, ...], text: str, change: Path) -> None:
    data = target.data
    for part in path[:-1]:
        data = data.setdefault(part, {}) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise UsageError(f"{SET} {'.'.join(path)}: unknown key")
    data[path[-1]] = text if path[:-1] == ENV else source.value(change, path, text)
    for where in [where for where in target.lines if where[: len(path)] == path]:
        del target.lines[where]  # what stood below the value is gone
    for where in (path[:end] for end in range(1, len(path) + 1)):
        if where not in target.lines:
            target.lines[where], target.files[where] = 1, change
