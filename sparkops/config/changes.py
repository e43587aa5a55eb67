"""Values that replace those of a recipe for one release: `--set KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sparkops.config.source import Source, value
from sparkops.errors import UsageError

PLACE = Path("--set")
ENV = ("serve", "env")
SHORT = {"env": ENV, "args": ("serve", "args")}


def apply(source: Source, changes: Iterable[str]) -> None:
    """Put each KEY=VALUE into the data, before it is checked like everything else. Raises UsageError, ConfigError."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not all(key.split(".")):
            raise UsageError(f"--set {change}: expected KEY=VALUE, such as env.NAME=x or swap.bake_s=10")
        _put(source, _path(key), text)


def _path(key: str) -> tuple[str, ...]:
    """env.NAME is short for serve.env.NAME."""
    first, _, rest = key.partition(".")
    if first in SHORT:
        return (*SHORT[first], rest) if rest else SHORT[first]
    return tuple(key.split("."))


def _put(source: Source, path: tuple[str, ...], text: str) -> None:
    data = source.data
    for part in path[:-1]:
        data = data.setdefault(part, {}) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise UsageError(f"--set {'.'.join(path)}: there is nothing of that name to change")
    data[path[-1]] = text if path[:-1] == ENV else value(PLACE, path, text)
    source.lines.setdefault(path, 1)
