"""Describe a checkpoint for the prediction of memory: config.json, and bytes of tensors. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops import foreign
from sparkops.config.lock import Described

LISTS = ("architectures", "layer_types", "layers_block_type")
ROPE = ("rope_parameters", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor")


@dataclass(frozen=True)
class Description:
    """Summary of a checkpoint. `tensors`: bytes by name, with `*` for numbers (`+`: layers past num_hidden_layers)."""

    config: Mapping[str, Any]
    tensors: Mapping[str, int]
    largest_bytes: int
    """Bytes of the largest safetensors file."""
    origin: str
    """Source of the description, for messages."""


def parse(text: str, origin: str) -> Description | None:
    """Parse the output of templates/node/describe.py; None without a checkpoint.

    Raises ValueError for an error of the program and for other text.
    """
    match foreign.loads(text):
        case None:
            return None
        case {"error": problem}:
            raise ValueError(problem)
        case {"config": dict(config), "tensors": dict(tensors), "largest": int(largest_bytes)}:
            return Description(config, tensors, largest_bytes, origin)
        case _:
            raise ValueError(f"unexpected description of a checkpoint: {text[:200]!r}")


def of_lock(lock: Described | None, model: str, revision: str | None, origin: str) -> Description | None:
    """Return the description in a lock; None for another model or revision."""
    if lock is None or lock.model != model or (revision and lock.commit and revision != lock.commit):
        return None
    return Description(lock.config, lock.tensors, lock.largest_bytes, origin)


def to_lock(description: Description, model: str, commit: str | None) -> Described:
    """Return a description as a lock stores it."""
    return Described(
        model=model,
        commit=commit,
        config=short(description.config),
        tensors=dict(description.tensors),
        largest_bytes=description.largest_bytes,
    )


def short(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a config.json that describe its layers, RoPE tables and cache: numbers, names, lists."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        if key == "text_config" and isinstance(value, Mapping):
            kept[key] = short(value)
        elif key == "vision_config":
            kept[key] = {}
        elif key == "quantization_config" and isinstance(value, Mapping):
            kept[key] = _cache_part(value)
        elif key in LISTS or key in ROPE or isinstance(value, (str, int)):
            kept[key] = value
    return kept


def _cache_part(quantization: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a quantization about the KV cache, without its long lists of tensors."""
    kept = {key: value for key, value in quantization.items() if key.startswith("kv_cache")}
    inner = quantization.get("quantization")
    return kept | ({"quantization": _cache_part(inner)} if isinstance(inner, Mapping) else {})
