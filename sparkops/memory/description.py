"""Describe a checkpoint for the prediction of memory: config.json, and bytes of tensors. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.config.lock import Described
from sparkops.nodes.host import GIB

LISTS = ("architectures", "layer_types", "layers_block_type")
ROPE = ("rope_parameters", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor")
DRAFT = re.compile(r"(^|\.)mtp\.|\.\+\.")
"""Tensors of an MTP head: `mtp.` in Qwen's checkpoints, layers past num_hidden_layers (`+`) in DeepSeek's and GLM's."""
WHOLE = re.compile(r"norm|\.gate\.(weight|bias|e_score)|router|shared_expert_gate|_a_proj|kv_a_proj_with_mqa")
"""Tensors that every rank has in full: ReplicatedLinear and norms in vllm/model_executor/models of 0.23.0."""
KEY_VALUE = re.compile(r"\.[kv]_proj\.")


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
    output = json.loads(text)
    if output is None:
        return None
    if "error" in output:
        raise ValueError(output["error"])
    return Description(output["config"], output["tensors"], output["largest"], origin)


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


def rank_gib(tensors: Mapping[str, int], ranks: int, kv_heads: int, *, drafts: bool) -> float:
    """Return GiB of weights on one of `ranks`. `tensors`: bytes by name; `drafts`: whether the MTP head is loaded."""
    loaded = {name: size for name, size in tensors.items() if drafts or not DRAFT.search(name)}
    return sum(size / _parts(name, ranks, kv_heads) for name, size in loaded.items()) / GIB


def _parts(name: str, ranks: int, kv_heads: int) -> int:
    if WHOLE.search(name):
        return 1
    return min(ranks, kv_heads) if KEY_VALUE.search(name) else ranks
