"""Parse the layers of a model from its config.json, with the cache that each needs. Pure.

The keys are those of the configuration classes of Transformers 5.5.3; the caches are those of vLLM 0.23.0
(vllm/model_executor/models/config.py, vllm/v1/kv_cache_interface.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, lcm
from typing import Any

UNSUPPORTED = ("compress_ratios", "index_topk", "indexer_head_dim", "attention_chunk_size", "is_encoder_decoder")
"""Keys of models whose cache has other parts than attention and state: DeepSeek 3.2 and 4, Llama 4, encoders."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
PATTERN = {"M": "mamba", "*": "full_attention", "-": "none", "E": "none"}
"""Letters of `hybrid_override_pattern` (Nemotron-H): a Mamba layer, attention, and layers without a cache."""


@dataclass(frozen=True)
class Attention:
    """Attention layer. `elements` are those of key and value together, per KV head and token.

    `window`: tokens of a sliding window, 0 for all. `latent`: MLA, one head, complete on every rank.
    """

    heads: int
    elements: int
    window: int = 0
    latent: bool = False


@dataclass(frozen=True)
class Recurrent:
    """State of a GDN or Mamba layer: a convolution of `channels` x (`kernel` - 1), and `elements` of the recurrence.

    `dtype`: of the recurrence, empty for the dtype of the model. `chunk`: tokens between cached states with prefix
    caching in vLLM's mode `all`; 0 for a layer with only the mode `align`.
    """

    channels: int
    kernel: int
    elements: int
    dtype: str = ""
    chunk: int = 0


Layer = Attention | Recurrent


@dataclass(frozen=True)
class Shape:
    """Dimensions of a model. `layers` are those with a cache; `drafts` those of the model's own MTP head."""

    layers: tuple[Layer, ...]
    drafts: tuple[Attention, ...]
    kv_heads: int
    hidden: int
    vocabulary: int
    experts_per_token: int
    intermediate: int
    """Width of one expert; without experts, of the feed-forward layer."""
    vision: bool
    window: int
    """Maximum context in tokens: `max_position_embeddings`."""
    dtype: str
    cache_dtype: str
    """KV cache dtype of the checkpoint's quantization; `auto` without one."""
    rope_elements: int = 0
    """Elements of the RoPE tables, which no checkpoint has and every rank keeps in full."""
    dense: bool = False
    """Whether it has neither experts nor quantized weights."""
    architectures: tuple[str, ...] = ()
    scaled: bool = False
    """Whether config.json has a longer context than `window`: a factor of RoPE, whose meaning differs by release, or
    `model_max_length`."""


def parse(config: Mapping[str, Any]) -> Shape:
    """Return the shape of a model. Raises ValueError for a missing or unsupported field."""
    text = text_config(config)
    for key in UNSUPPORTED:
        if text.get(key) or config.get(key):
            raise ValueError(f"config.json: {key}: not supported: the cache of such a model cannot be computed")
    layers = tuple(_layers(text))
    attention = [layer for layer in layers if isinstance(layer, Attention)]
    if not attention:
        raise ValueError("config.json: layer_types: no attention layer, expected at least one")
    drafts = _optional(text, "mtp_num_hidden_layers", "num_nextn_predict_layers")
    return Shape(
        layers=layers,
        drafts=(_attention(text, "full_attention"),) * drafts,
        kv_heads=attention[0].heads,
        hidden=_required(text, "hidden_size"),
        vocabulary=_required(text, "vocab_size"),
        experts_per_token=_optional(text, "num_experts_per_tok", "top_k_experts", default=1),
        intermediate=_required(text, "moe_intermediate_size", "intermediate_size"),
        vision="vision_config" in config,
        window=_required(text, "max_position_embeddings"),
        dtype=str(_first(text, "dtype", "torch_dtype") or _first(config, "dtype", "torch_dtype") or "bfloat16"),
        cache_dtype=_cache_dtype(config.get("quantization_config") or {}),
        rope_elements=sum(_rope_tables(text)),
        dense="quantization_config" not in config and not _optional(text, *EXPERTS),
        architectures=tuple(config.get("architectures") or ()),
        scaled="model_max_length" in {*text, *config} or _has_factor(_first(text, "rope_parameters", "rope_scaling")),
    )


def stage(shape: Shape, stages: int) -> tuple[Shape, float]:
    """Return the model as its stage with most attention has it, and the share of the layers there.

    No stage has more than the ceiling of layers / stages, in their order (get_pp_indices in vllm/distributed/utils.py
    of 0.33.0).
    """
    size = ceil(len(shape.layers) / stages)
    parts = [shape.layers[first : first + size] for first in range(0, len(shape.layers), size)]
    most = max(parts, key=lambda part: sum(isinstance(layer, Attention) for layer in part))
    return replace(shape, layers=most), size / len(shape.layers)


def _has_factor(rope: Any) -> bool:
    """Return whether RoPE's parameters, or those of a kind of layers among them, have a factor."""
    values = rope.items() if isinstance(rope, Mapping) else ()
    return any(value not in (None, 1) if key == "factor" else _has_factor(value) for key, value in values)


def _rope_tables(text: Mapping[str, Any]) -> Iterator[int]:
    """Yield the elements of each RoPE table: cosine and sine of every position of the scaled context.

    Source: get_rope and the classes in vllm/model_executor/layers/rotary_embedding of 0.23.0. Models with sliding
    windows have a table for each kind of attention (Gemma 3: models/gemma3.py). Nemotron-H has none.
    """
    if "hybrid_override_pattern" in text:
        return
    given = _first(text, "rope_parameters", "rope_scaling") or {}
    kinds = {kind for kind in _kinds(text) if kind in ("full_attention", "attention", "sliding_attention")}
    local = "rope_local_base_freq" in text  # Transformers 4: its scaling is that of the layers without a window
    apart = local or any(kind in given for kind in kinds)
    for kind in sorted(kinds) if apart else sorted(kinds)[:1]:
        rope = given.get(kind, {}) if kind in given else {} if local and kind == "sliding_attention" else given
        layer = _attention(text, kind)
        width = _required(text, "qk_rope_head_dim") if layer.latent else layer.elements // 2
        share = rope.get("partial_rotary_factor") or text.get("partial_rotary_factor") or 1.0
        yield int(_positions(text, rope) * int(width * share))


def _positions(text: Mapping[str, Any], rope: Mapping[str, Any]) -> float:
    """Return the rows of a RoPE table."""
    window, factor = _required(text, "max_position_embeddings"), float(rope.get("factor") or 1.0)
    match rope.get("rope_type") or rope.get("type"):
        case "linear" | "dynamic":
            return window * factor
        case "yarn" | "deepseek_yarn" | "deepseek_llama_scaling":
            return _optional(rope, "original_max_position_embeddings", default=window) * factor
        case _:  # MRotaryEmbedding: four times as many, for images and videos
            return window * 4.0 if "mrope_section" in rope else float(window)


def _layers(text: Mapping[str, Any]) -> list[Layer]:
    count, kinds = _required(text, "num_hidden_layers"), _kinds(text)
    if len(kinds) != count:
        raise ValueError(f"config.json: layer_types: {len(kinds)} layers, expected num_hidden_layers {count}")
    shared = _optional(text, "num_kv_shared_layers")  # the last ones read the cache of earlier layers
    return [_layer(text, kind) for kind in kinds[: count - shared] if kind != "none"]


def _kinds(text: Mapping[str, Any]) -> list[str]:
    """Return the kind of each layer, from a list, a pattern or an interval."""
    numbers = range(1, _required(text, "num_hidden_layers") + 1)
    if types := _first(text, "layer_types", "layers_block_type"):
        return [str(kind) for kind in types]
    if pattern := text.get("hybrid_override_pattern"):
        return [PATTERN.get(letter, letter) for letter in pattern]
    if interval := _optional(text, "full_attention_interval"):
        return ["linear_attention" if number % interval else "full_attention" for number in numbers]
    if interval := _optional(text, "sliding_window_pattern"):
        return ["sliding_attention" if number % interval else "full_attention" for number in numbers]
    slides = text.get("sliding_window") and text.get("use_sliding_window") is not False
    return ["sliding_attention" if slides else "full_attention" for _ in numbers]


def _layer(text: Mapping[str, Any], kind: str) -> Layer:
    if kind in ("full_attention", "attention", "sliding_attention"):
        return _attention(text, kind)
    if kind == "linear_attention" and "linear_num_value_heads" in text:
        return _gated_delta_net(text)
    if kind in ("mamba", "mamba2"):
        return _mamba(text)
    raise ValueError(f"config.json: layer_types: {kind!r} is not supported: its cache cannot be computed")


def _attention(text: Mapping[str, Any], kind: str) -> Attention:
    window = _required(text, "sliding_window") if kind == "sliding_attention" else 0
    if _optional(text, "kv_lora_rank"):
        elements = _required(text, "kv_lora_rank") + _required(text, "qk_rope_head_dim")
        return Attention(1, elements, window, latent=True)
    queries = _required(text, "num_attention_heads")
    heads = _optional(text, "num_key_value_heads", default=queries)
    width = _optional(text, "head_dim", default=_required(text, "hidden_size") // queries)
    if not window:  # Gemma 4 has other heads in the layers without a window
        heads = _optional(text, "num_global_key_value_heads", default=heads)
        width = _optional(text, "global_head_dim", default=width)
    return Attention(heads, 2 * width, window)


def _gated_delta_net(text: Mapping[str, Any]) -> Recurrent:
    """Return the state of a GDN layer: MambaStateShapeCalculator.gated_delta_net_state_shape of vLLM 0.23.0."""
    keys = _required(text, "linear_num_key_heads") * _required(text, "linear_key_head_dim")
    values = _required(text, "linear_num_value_heads") * _required(text, "linear_value_head_dim")
    return Recurrent(
        channels=2 * keys + values,
        kernel=_required(text, "linear_conv_kernel_dim"),
        elements=values * _required(text, "linear_key_head_dim"),
        dtype=str(text.get("mamba_ssm_dtype") or ""),
    )


def _mamba(text: Mapping[str, Any]) -> Recurrent:
    """Return the state of a Mamba-2 layer: MambaStateShapeCalculator.mamba2_state_shape of vLLM 0.23.0."""
    inner = _required(text, "mamba_num_heads", "mamba_n_heads") * _required(text, "mamba_head_dim", "mamba_d_head")
    size = _required(text, "ssm_state_size", "mamba_d_state")
    groups = _required(text, "n_groups", "mamba_n_groups")
    nemotron = "hybrid_override_pattern" in text  # NemotronHForCausalLMConfig: float32 unless the config says so
    return Recurrent(
        channels=inner + 2 * groups * size,
        kernel=_required(text, "conv_kernel", "mamba_d_conv"),
        elements=inner * size,
        dtype=str(text.get("mamba_ssm_cache_dtype") or ("float32" if nemotron else "")),
        chunk=lcm(_required(text, "chunk_size", "mamba_chunk_size"), 16),
    )


def _cache_dtype(quantization: Mapping[str, Any]) -> str:
    """Return the meaning of `auto`: resolve_kv_cache_dtype_string and Attention of vLLM 0.23.0."""
    inner = quantization.get("quantization") or quantization
    scheme = inner.get("kv_cache_scheme") or quantization.get("kv_cache_scheme") or inner.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        return {8: "fp8", 4: "nvfp4"}.get(scheme.get("num_bits", 0), "auto")
    return str(scheme).lower() if str(scheme).lower() in ("fp8", "nvfp4") else "auto"


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the language model, which is nested in models with vision."""
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else config


def _first(config: Mapping[str, Any], *keys: str) -> Any:
    """Return the first value that is not null; None without one."""
    return next((config[key] for key in keys if config.get(key) is not None), None)


def _optional(config: Mapping[str, Any], *keys: str, default: int = 0) -> int:
    """Return the first whole number among `keys`, else `default`. Raises ValueError for another value."""
    value = _first(config, *keys)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"config.json: {keys[0]}: expected a whole number, got {value!r}")
    return value


def _required(config: Mapping[str, Any], *keys: str) -> int:
    """Return the first whole number among `keys`. Raises ValueError without one."""
    value = _optional(config, *keys, default=-1)
    if value < 0:
        raise ValueError(f"config.json: {' or '.join(keys)}: missing, expected a whole number")
    return value
