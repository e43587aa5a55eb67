"""A checkpoint as the planner needs it: its config.json, and the bytes of its tensors by name. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.config.lock import Described

LISTS = ("layer_types", "layers_block_type")


@dataclass(frozen=True)
class Description:
    """Checkpoint in short. `tensors`: bytes by name, layer and expert numbers as `*` (`+` past num_hidden_layers)."""

    config: Mapping[str, Any]
    tensors: Mapping[str, int]
    largest_bytes: int
    """Bytes of the largest safetensors file."""
    origin: str
    """Where it was read, for people."""


def parse(text: str, origin: str) -> Description | None:
    """Read the answer of templates/node/describe.py; None where it found no checkpoint.

    Raises ValueError for what the program could not read, and for anything that is not its answer.
    """
    answer = json.loads(text)
    if answer is None:
        return None
    if "error" in answer:
        raise ValueError(answer["error"])
    return Description(answer["config"], answer["tensors"], answer["largest"], origin)


def kept(lock: Described | None, model: str, revision: str | None, origin: str) -> Description | None:
    """Return the description that a lock holds; None where it is of another model or revision."""
    if lock is None or lock.model != model or (revision and lock.commit and revision != lock.commit):
        return None
    return Description(lock.config, lock.tensors, lock.largest_bytes, origin)


def keep(description: Description, model: str, commit: str | None) -> Described:
    """Return what a lock holds of a description."""
    return Described(
        model=model,
        commit=commit,
        config=short(description.config),
        tensors=dict(description.tensors),
        largest_bytes=description.largest_bytes,
    )


def short(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config.json that describe its layers and cache: numbers, names, lists of layers."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        if key == "text_config" and isinstance(value, Mapping):
            kept[key] = short(value)
        elif key == "vision_config":
            kept[key] = {}
        elif key == "quantization_config" and isinstance(value, Mapping):
            kept[key] = _cache_part(value)
        elif key in LISTS or isinstance(value, (str, int)):
            kept[key] = value
    return kept


def _cache_part(quantization: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a quantization says about the KV cache; its lists of tensors are long."""
    kept = {key: value for key, value in quantization.items() if key.startswith("kv_cache")}
    inner = quantization.get("quantization")
    return kept | ({"quantization": _cache_part(inner)} if isinstance(inner, Mapping) else {})
