"""Values of a config.json by key, with errors that name the field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part about the language model: models with vision nest it."""
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else config


def first(config: Mapping[str, Any], *keys: str) -> Any:
    """Return the first value that is not null; None without one."""
    return next((config[key] for key in keys if config.get(key) is not None), None)


def optional(config: Mapping[str, Any], *keys: str, default: int = 0) -> int:
    """Return the first whole number among `keys`, else `default`. Raises ValueError for a value of another kind."""
    value = first(config, *keys)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"config.json: {keys[0]}: expected a whole number, got {value!r}")
    return value


def required(config: Mapping[str, Any], *keys: str) -> int:
    """Return the first whole number among `keys`. Raises ValueError without one."""
    value = optional(config, *keys, default=-1)
    if value < 0:
        raise ValueError(f"config.json: {' or '.join(keys)}: missing, expected a whole number")
    return value
