"""Values that replace those of a recipe for one release: `--set KEY=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from sparkops.config.source import Source
from sparkops.errors import UsageError

SHORT = {"env": ("serve", "env"), "args": ("serve", "args")}


def apply(source: Source, changes: Iterable[str]) -> None:
    """Put each KEY=VALUE into the data, before it is checked like everything else. Raises UsageError."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {change}: expected KEY=VALUE, such as env.NAME=x or swap.bake_s=10")
        _put(source, _path(key), text)


def _path(key: str) -> tuple[str, ...]:
    """env.NAME is short for serve.env.NAME."""
    first, _, rest = key.partition(".")
    if first in SHORT and rest:
        return (*SHORT[first], rest)
    return tuple(key.split("."))


def _put(source: Source, path: tuple[str, ...], text: str) -> None:
    data = source.data
    for part in path[:-1]:
        data = data.setdefault(part, {}) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise UsageError(f"--set {'.'.join(path)}: there is nothing of that name to change")
    data[path[-1]] = text if path[:2] == SHORT["env"] else _value(path, text)
    source.lines.setdefault(path, 1)


def _value(path: tuple[str, ...], text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise UsageError(f"--set {'.'.join(path)}: {text!r} is not a YAML value") from None
