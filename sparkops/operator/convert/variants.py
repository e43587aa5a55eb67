"""Choose one of several settings in a recipe of spark-vllm-docker or sparkrun: solo or cluster, or a named variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sparkops.config.fields import Location
from sparkops.config.source import Source
from sparkops.errors import ConfigError
from sparkops.operator.convert.recipe_keys import OMITTED, READ_KEYS, SPLIT

AS_WRITTEN, SOLO, CLUSTER = "default", "solo", "cluster"
TOP = READ_KEYS | {"env", "mods", *OMITTED}
"""Keys of a variant that replace those of the recipe; all others are values of `defaults`."""


def chosen(source: Source, choice: str) -> Source:
    """Return a recipe with the variant `choice`; empty: as it is written.

    A recipe for more than one node that fixes no number of nodes has the variants solo and cluster, as of
    `run-recipe.sh --solo`; it is written for a cluster. Raises ConfigError for an unknown variant, and for a recipe
    with `variants` if none is chosen.
    """
    original: Mapping[str, Any] = source.data if isinstance(source.data, dict) else {}
    variants = original.get("variants")
    if isinstance(variants, dict) and variants:
        if choice not in (AS_WRITTEN, *variants):
            raise _unknown(source, choice, [AS_WRITTEN, *variants])
        return _with(source, original, choice)
    if not choice:
        return source
    names = _modes(original)
    if choice not in names:
        raise _unknown(source, choice, names)
    if choice == CLUSTER:
        return _changed(source, {**original, "cluster_only": True})
    defaults = {**(original.get("defaults") or {}), "tensor_parallel": 1, "pipeline_parallel": 1}
    return _changed(source, {**original, "solo_only": True, "defaults": defaults})


def _modes(original: Mapping[str, Any]) -> list[str]:
    """Return which of solo and cluster a recipe can be."""
    if original.get("solo_only") is True or original.get("mode") == SOLO:
        return [SOLO]
    if original.get("cluster_only") is True or original.get("mode") == CLUSTER:
        return [CLUSTER]
    defaults = original.get("defaults")
    sizes = [defaults.get(key, 1) for key in SPLIT.values()] if isinstance(defaults, dict) else []
    return [SOLO] if {*map(str, sizes)} <= {"1"} else [SOLO, CLUSTER]


def _with(source: Source, original: Mapping[str, Any], choice: str) -> Source:
    """Return a recipe in which the keys of a variant replace its own, with their lines."""
    data = {key: value for key, value in original.items() if key != "variants"}
    settings = original["variants"].get(choice) or {}
    if not isinstance(settings, dict):
        raise source.fail(("variants", choice), f"expected a mapping, got {settings!r}")
    data["defaults"] = {**(data.get("defaults") or {}), **{k: v for k, v in settings.items() if k not in TOP}}
    data |= {key: value for key, value in settings.items() if key in TOP and key != "env"}
    data["env"] = {**(data.get("env") or {}), **(settings.get("env") or {})}
    moved: dict[Location, int] = {}
    for where, line in source.lines.items():
        if where[:2] == ("variants", choice) and len(where) > 2:
            moved[where[2:] if where[2] in TOP else ("defaults", *where[2:])] = line
    return replace(source, data=data, lines={**source.lines, **moved})


def _changed(source: Source, data: Mapping[str, Any]) -> Source:
    return replace(source, data=dict(data))


def _unknown(source: Source, choice: str, names: Iterable[str]) -> ConfigError:
    listed = [*names]
    problem = f"no variant {choice}" if choice else "several variants"
    error = source.fail(("variants",), f"{problem}, expected one of: {', '.join(listed)}")
    error.next_step = f"sparkops import {source.file} --variant {listed[0]}"
    return error
