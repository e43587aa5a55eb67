"""The weights of one rank, from the tensors of a checkpoint. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkops.units import GIB

DRAFT = re.compile(r"(^|\.)mtp\.|\.\+\.")
"""Tensors of an MTP head: `mtp.` in Qwen's checkpoints, layers past num_hidden_layers (`+`) in DeepSeek's and GLM's."""
WHOLE = re.compile(r"norm|\.gate\.(weight|bias|e_score)|router|shared_expert_gate|_a_proj|kv_a_proj_with_mqa")
"""Tensors that every rank has in full: ReplicatedLinear and norms in vllm/model_executor/models of 0.23.0."""
KEY_VALUE = re.compile(r"\.[kv]_proj\.")


def rank_gib(tensors: Mapping[str, int], ranks: int, kv_heads: int, *, drafts: bool) -> float:
    """Return GiB of weights on one of `ranks`. `tensors`: bytes by name; `drafts`: whether the MTP head is loaded."""
    loaded = {name: size for name, size in tensors.items() if drafts or not DRAFT.search(name)}
    return sum(size / _parts(name, ranks, kv_heads) for name, size in loaded.items()) / GIB


def _parts(name: str, ranks: int, kv_heads: int) -> int:
    if WHOLE.search(name):
        return 1
    return min(ranks, kv_heads) if KEY_VALUE.search(name) else ranks
