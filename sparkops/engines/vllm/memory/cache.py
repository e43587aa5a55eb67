"""Compute the layout of the KV cache in vLLM 0.23.0: pages, groups of layers, blocks of one request. Pure.

Sources, all of vLLM 0.23.0: vllm/v1/kv_cache_interface.py (bytes of a page, blocks of a request),
Platform._align_hybrid_block_size in vllm/platforms/interface.py (pages of attention beside states),
_get_kv_cache_groups_uniform_page_size and _report_kv_cache_config in vllm/v1/core/kv_cache_utils.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from sparkops.engines.needs import Layout
from sparkops.engines.vllm.memory.shape import Attention, Layer, Recurrent, Shape

BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}
TURBOQUANT = {"k8v4": (8, 4), "4bit_nc": (4, 4), "k3v4_nc": (3, 4), "3bit_nc": (3, 3)}
"""Bits of key and value: TQ_PRESETS in vllm/model_executor/layers/quantization/turboquant/config.py."""
PADDED = 1.5
"""Below this ratio of layers, vLLM pads the smaller kind instead of splitting the larger one."""


@dataclass(frozen=True)
class Serving:
    """Arguments of the engine that determine its cache."""

    window: int
    """max-model-len, in tokens."""
    batched_tokens: int
    ranks: int = 1
    block: int = 16
    """Tokens of a block without states, which enlarge it: 16 on CUDA, 128 on a CPU."""
    model_dtype: str = "bfloat16"
    dtype: str = "auto"
    """kv-cache-dtype; `auto` is the dtype of the checkpoint's quantization, else the model's."""
    state_dtype: str = "auto"
    """mamba-ssm-cache-dtype; `auto` is that of config.json, else the model's."""
    prefix_caching: bool = False
    draft_tokens: int = 0
    slides: bool = True
    """Whether sliding windows free passed tokens; not with disable-hybrid-kv-cache-manager."""


def layout(shape: Shape, serving: Serving) -> Layout:
    """Return the cache of one rank. Raises ValueError for pages that vLLM cannot make equal, or an unknown dtype."""
    drafts = shape.drafts if serving.draft_tokens else ()
    counts = Counter(_managed(layer, slides=serving.slides) for layer in (*shape.layers, *drafts))
    per_token = {kind: token_bytes(kind, shape, serving) for kind in counts if isinstance(kind, Attention)}
    states = [state_bytes(kind, serving) for kind in counts if isinstance(kind, Recurrent)]
    block = _block(shape, serving, max(states, default=0), max(per_token.values()))
    page = block * max(per_token.values())
    blocks = {kind: _tokens_of_page(page, size) for kind, size in per_token.items()}
    size = _group_size(counts.values())
    groups = {kind: ceil(count / size) for kind, count in counts.items()}
    request = sum(
        groups[kind] * _request(kind, blocks[kind] if isinstance(kind, Attention) else block, serving)
        for kind in counts
    )
    return Layout(page, size, sum(groups.values()), block, request, serving.window)


def _managed(layer: Layer, *, slides: bool) -> Layer:
    """Return the layer for the cache: without its window if windows free nothing."""
    if isinstance(layer, Attention) and not slides:
        return Attention(layer.heads, layer.elements, 0, layer.latent)
    return layer


def token_bytes(layer: Attention, shape: Shape, serving: Serving) -> int:
    """Return the bytes of one token in one layer on one rank. KV heads are repeated if there are more ranks."""
    heads = 1 if layer.latent else max(layer.heads // serving.ranks, 1)
    dtype = shape.cache_dtype if serving.dtype == "auto" else serving.dtype
    dtype = serving.model_dtype if dtype == "auto" else dtype
    if dtype.startswith("turboquant_"):
        return heads * _turboquant(layer.elements // 2, dtype.removeprefix("turboquant_"))
    if dtype == "nvfp4":  # 4 bits, and a scale of one byte for 16 elements
        return heads * (layer.elements // 2 + layer.elements // 16)
    if dtype in ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"):
        return heads * layer.elements
    scales = 8 if dtype.endswith("_per_token_head") else 0
    size = 1 if scales else _bytes(dtype, "kv-cache-dtype")
    return heads * (layer.elements * size + scales)


def _turboquant(width: int, preset: str) -> int:
    """Return bytes per head and token: packed key with its norm, packed value with scale and zero, made even."""
    if preset not in TURBOQUANT:
        raise ValueError(f"kv-cache-dtype: turboquant_{preset}: unknown, expected one of: {', '.join(TURBOQUANT)}")
    key, value = TURBOQUANT[preset]
    slot = ceil(width * key / 8) + (0 if key == 8 else 2) + ceil(width * value / 8) + 4
    return slot + slot % 2


def state_bytes(layer: Recurrent, serving: Serving) -> int:
    """Return the bytes of one state in one layer on one rank. Draft tokens widen its convolution."""
    model = _bytes(serving.model_dtype, "dtype")
    named = layer.dtype if serving.state_dtype == "auto" else serving.state_dtype
    convolution = layer.channels // serving.ranks * (layer.kernel - 1 + serving.draft_tokens) * model
    return convolution + layer.elements // serving.ranks * (_bytes(named, "mamba-ssm-cache-dtype") if named else model)


def _bytes(dtype: str, argument: str) -> int:
    """Return the bytes of an element. Raises ValueError for an unsupported dtype."""
    name = re.sub(r"^torch\.", "", dtype)
    if name not in BYTES:
        raise ValueError(
            f"{argument}: {dtype}: unknown, expected one of: {', '.join(BYTES)}, fp8, nvfp4, turboquant_..."
        )
    return BYTES[name]


def _block(shape: Shape, serving: Serving, state: int, token: int) -> int:
    """Return the tokens of a block: enough for its page to hold a state, in whole multiples of the kernel's block."""
    if not state:
        return serving.block
    chunks = [layer.chunk for layer in shape.layers if isinstance(layer, Recurrent)]
    step = max(chunks) if serving.prefix_caching and all(chunks) else serving.block
    return max(step * ceil(Fraction(state, step * token)), serving.block)


def _tokens_of_page(page: int, token: int) -> int:
    if page % token:
        problem = f"pages of {page} bytes hold no whole number of tokens of {token} bytes"
        raise ValueError(f"config.json: {problem}: vLLM 0.23.0 cannot make the pages of these layers equal")
    return page // token


def _group_size(counts: Iterable[int]) -> int:
    sizes = sorted(counts)
    return sizes[-1] if sizes[-1] < sizes[0] * PADDED else sizes[0]


def _request(kind: Layer, block: int, serving: Serving) -> int:
    """Return the blocks of one request of the full context in one group of this kind of layer."""
    if isinstance(kind, Attention):
        if not kind.window:
            return ceil(serving.window / block)
        return ceil(min(kind.window - 1 + serving.batched_tokens, serving.window) / block) + 1
    if not serving.prefix_caching:
        return 1 + serving.draft_tokens
    return (ceil(serving.window / block) if kind.chunk else 2) + serving.draft_tokens


def kinds(layers: Sequence[Layer]) -> str:
    """Return the layers as text, such as `12 full attention, 36 state`."""
    counted = Counter(_word(layer) for layer in layers)
    return ", ".join(f"{count} {word}" for word, count in counted.items())


def _word(layer: Layer) -> str:
    if isinstance(layer, Recurrent):
        return "state"
    window = f"sliding attention of {layer.window} tokens" if layer.window else "full attention"
    return f"MLA {window}" if layer.latent else window
