"""Weights of one rank, from the names and bytes of tensors."""

from __future__ import annotations

import pytest

from sparkops.engines.vllm.memory.weights import rank_gib

GIB = 2**30
ALL = {
    "model.layers.*.self_attn.q_proj.weight": 8 * GIB,
    "model.layers.*.self_attn.k_proj.weight": 4 * GIB,
    "model.layers.*.mlp.experts.*.up_proj.qweight": 16 * GIB,
    "model.layers.*.mlp.gate.weight": GIB,
    "model.layers.*.input_layernorm.weight": GIB,
    "model.layers.*.self_attn.kv_a_proj_with_mqa.weight": GIB,
    "mtp.layers.*.mlp.experts.*.up_proj.weight": 2 * GIB,
    "model.layers.+.mlp.experts.*.up_proj.weight": 4 * GIB,
}


@pytest.mark.parametrize(
    ("ranks", "kv_heads", "drafts", "gib"),
    [
        (1, 8, False, 31.0),
        (1, 8, True, 37.0),
        (2, 8, False, 8 / 2 + 4 / 2 + 16 / 2 + 3),
        (4, 2, False, 8 / 4 + 4 / 2 + 16 / 4 + 3),
        (2, 8, True, 8 / 2 + 4 / 2 + 16 / 2 + 3 + 6 / 2),
    ],
    ids=["one rank", "with the MTP head", "two ranks", "more ranks than KV heads", "two ranks with the MTP head"],
)
def test_weights_per_rank(ranks: int, kv_heads: int, drafts: bool, gib: float) -> None:
    assert rank_gib(ALL, ranks, kv_heads, drafts=drafts) == gib
