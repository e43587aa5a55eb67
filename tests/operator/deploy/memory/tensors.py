"""Tensors of a checkpoint as its config.json gives their shapes: bytes by name, like the headers of its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparkops.engines.vllm.memory.shape import text_config

INT4 = 0.5 + 2 / 128 + 0.5 / 128
"""Bytes of a weight in groups of 128: 4 bits, a scale of 16 bits and a zero of 4 bits for each group."""
NVFP4 = 0.5 + 1 / 16
MXFP4 = 0.5 + 1 / 32
FP8 = 1 + 4 / (128 * 128)
BF16 = 2.0
VISION = 0.45e9
"""Parameters of the vision encoder: 27 layers of width 1152 and its merger."""


def tensors(
    config: Mapping[str, Any], experts: float, linear: float, shared: float, *, drafts: bool
) -> Mapping[str, int]:
    """Return bytes by name, with so many bytes for a weight of each class. All else has 16 bits, the MTP head too."""
    text = text_config(config)
    of = {"experts": experts, "linear": linear, "shared": shared}
    sizes: dict[str, float] = {}
    for prefix, kinds in _layers(text).items():
        for kind, count in kinds.items():
            for name, parameters, group in _layer(text, kind):
                sizes[f"model.layers.*.{prefix}{name}"] = count * parameters * of.get(group, BF16)
    embedding = text["vocab_size"] * text["hidden_size"] * BF16
    sizes |= {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding}
    if "vision_config" in config:
        sizes["model.visual.blocks.*.weight"] = VISION * BF16
    if drafts:
        sizes |= {f"mtp.layers.*.{name}": size * BF16 for name, size, _ in _layer(text, "attention")}
        sizes["mtp.fc.weight"] = 2 * text["hidden_size"] ** 2 * BF16
    return {name: int(size) for name, size in sizes.items()}


def _layers(text: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    count, interval = text["num_hidden_layers"], text.get("full_attention_interval")
    if not interval:
        return {"": {"attention": count}}
    return {"full.": {"attention": count // interval}, "gdn.": {"state": count - count // interval}}


def _layer(text: Mapping[str, Any], kind: str) -> Iterator[tuple[str, int, str]]:
    """Yield name, parameters and class of the tensors of one layer."""
    yield from _attention(text) if kind == "attention" else _state(text)
    hidden = text["hidden_size"]
    experts = text.get("num_experts") or text.get("num_local_experts")
    if not experts:
        yield "mlp.gate_up_down.weight", 3 * hidden * text["intermediate_size"], "linear"
        return
    wide = text.get("moe_intermediate_size") or text["intermediate_size"]
    yield "mlp.experts.*.gate_up_down.weight", experts * 3 * hidden * wide, "experts"
    yield "mlp.gate.weight", experts * hidden, "router"
    if wide := text.get("shared_expert_intermediate_size", 0):
        yield "mlp.shared_expert.gate_up_down.weight", 3 * hidden * wide, "shared"


def _attention(text: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    hidden, queries = text["hidden_size"], text["num_attention_heads"] * text["head_dim"]
    gates = 2 if "full_attention_interval" in text else 1  # Qwen3.5 projects a gate beside the query
    yield "self_attn.q_proj.weight", hidden * queries * gates, "linear"
    yield "self_attn.o_proj.weight", hidden * queries, "linear"
    for name in ("k_proj", "v_proj"):
        yield f"self_attn.{name}.weight", hidden * text["num_key_value_heads"] * text["head_dim"], "linear"


def _state(text: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    hidden = text["hidden_size"]
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    yield "linear_attn.in_proj.weight", hidden * (2 * keys + 2 * values), "linear"
    yield "linear_attn.out_proj.weight", hidden * values, "linear"
