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
STAGED = re.compile(r"^(?!.*vis).*\.layers\.\*\.")
"""Tensors of the language model's layers, of which a stage has a share; embeddings, head and vision are on one."""


def rank_gib(tensors: Mapping[str, int], ranks: int, kv_heads: int, *, drafts: bool, share: float = 1.0) -> float:
    """Return GiB of weights on one of `ranks` that share a layer.

    `tensors`: bytes by name. `drafts`: whether the MTP head is loaded. `share`: the part of the layers in the largest
    stage. What is outside of the layers counts in full, as if one stage had all of it, so that none has more.
    """
    loaded = {name: size for name, size in tensors.items() if drafts or not DRAFT.search(name)}
    parts = ((name, size / _parts(name, ranks, kv_heads)) for name, size in loaded.items())
    return sum(size * (share if STAGED.search(name) else 1.0) for name, size in parts) / GIB


def _parts(name: str, ranks: int, kv_heads: int) -> int:
    if WHOLE.search(name):
        return 1
    return min(ranks, kv_heads) if KEY_VALUE.search(name) else ranks
