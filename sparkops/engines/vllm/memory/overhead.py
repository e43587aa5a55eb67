"""Estimate the memory of an engine besides weights and KV cache, and its peak while it loads. Pure.

vLLM measures this part at each start and has no formula for it. The figures here are fitted to a few published starts,
with an error of a few GiB; docs/evidence/memory.md compares the sum with measurements.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.engines.needs import GRAPHS, Loader, Loading, Term
from sparkops.engines.vllm.memory.cache import Serving
from sparkops.engines.vllm.memory.shape import Shape
from sparkops.units import GIB

RUNTIME_GIB, LEAST_RUNTIME_GIB = 0.4, 0.15
VISION_GIB = 1.6
LOGIT_BYTES, LEAST_LOGIT_BYTES = 10, 6
"""Bytes of a logit while the V1 model runner samples, fitted; at least 2 in 16 bits and a copy in 4 (Sampler of V2)."""
GRAPH_GIB, GRAPH_SIZE_GIB, GRAPH_LAYERS = 0.134, 0.0227, 48
MOST_CAPTURED = 512
CPU_HOST_GIB = 2.4
"""Host side of vLLM on a CPU: recipes/tiny-qwen3-cpu.yaml, measured in three processes with 0.32.0."""
MMAP = ("auto", "hf", "safetensors")
INSTANT_GIB = 4.4
"""GiB that InstantTensor keeps on each of two Sparks: MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204."""


def terms(shape: Shape, serving: Serving, requests: int, graphs: int, *, v2: bool = False) -> tuple[Term, ...]:
    """Return the terms of a running engine. `requests`: max-num-seqs; `graphs`: largest batch of a CUDA graph, or 0.

    The sampler is fitted to the start of 122b-autoround, vision to that of 122b-nvfp4-sehyo. Runtime is NCCL and
    workspaces: 0.17 to 0.32 GiB on an H100, FlashInfer's 0.39. `v2`: the V2 model runner, which takes activations and
    logits one after the other (profile_run in vllm/v1/worker/gpu/model_runner.py of 0.23.0), so that the larger counts.
    """
    activations, logits = _activations(shape, serving), min(requests, serving.batched_tokens) * shape.vocabulary
    after_gib = max(logits * LEAST_LOGIT_BYTES / GIB - activations, 0.0)
    return (
        Term("activations", activations),
        Term("sampler", after_gib if v2 else logits * LOGIT_BYTES / GIB),
        Term("vision", VISION_GIB if shape.vision else 0.0),
        Term("runtime", RUNTIME_GIB),
        Term(GRAPHS, graph_gib(graphs, len(shape.layers))),
    )


def least_gib(shape: Shape, serving: Serving, requests: int) -> float:
    """Return the GiB that a start reserves at least: the larger of a pass's tensors and the logits, and no CUDA graph.

    vLLM 0.23.0 estimated 0.12 GiB of graphs for a model of two layers.
    """
    experts = shape.experts_per_token * 3 * shape.intermediate // serving.ranks
    tensors_gib = serving.batched_tokens * 2 * (3 * shape.hidden + experts) / GIB
    logits_gib = min(requests, serving.batched_tokens) * shape.vocabulary * LEAST_LOGIT_BYTES / GIB
    return max(tensors_gib, logits_gib) + (VISION_GIB if shape.vision else 0.0) + LEAST_RUNTIME_GIB


def _activations(shape: Shape, serving: Serving) -> float:
    """Return GiB of a forward pass in 16 bits: the residual stream, and the active experts of a token."""
    experts = shape.experts_per_token * (shape.hidden + 3 * shape.intermediate // serving.ranks)
    return serving.batched_tokens * 2 * (8 * shape.hidden + experts) / GIB


def captured(requests: int, draft_tokens: int) -> int:
    """Return the largest batch that vLLM captures: _set_cudagraph_sizes in vllm/config/vllm.py of 0.23.0."""
    return min(requests * (1 + draft_tokens) * 2, MOST_CAPTURED)


def graph_gib(largest: int, layers: int) -> float:
    """Return GiB of CUDA graphs: 1, 2, 4, then every 8th batch size up to 256 and every 16th up to `largest`.

    Linear through two starts of a model of GRAPH_LAYERS layers: 0.27 GiB for 6 sizes, 1.29 for 51. A graph has a part
    for each layer: 51 sizes took 0.52 GiB with 28 layers and 0.10 with 2 (tests/captured).
    """
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, MOST_CAPTURED + 1, 16)]
    count = sum(size <= largest for size in sizes)
    return GRAPH_GIB + GRAPH_SIZE_GIB * count * layers / GRAPH_LAYERS if count else 0.0


def loaders(named: str, shard_gib: float, loading: Loading) -> Iterator[Loader]:
    """Yield the known loaders, that of the recipe first. `shard_gib`: the largest file.

    fastsafetensors copies whole files to the GPU (fastsafetensors_weights_iterator of vLLM 0.23.0) and reads them
    through the page cache, which a GB10 counts as used, so one file counts twice: 67 GB in 14 files loaded at 0.85,
    78 GB in 2 files froze the host at 0.84 (forum post on AutoRound). The default loader maps files; the kernel frees
    their clean pages.
    """
    shared, weights_gib = loading.shared, loading.weights_gib
    host_gib, floor_gib = (loading.host_gib, loading.floor_gib) if shared else (0.0, 0.0)
    limit_gib, side = loading.total_gib - floor_gib, f" + host side {host_gib:g}" if host_gib else ""
    known = {
        "safetensors": (0.0, f"weights {weights_gib:.1f}{side}"),
        "fastsafetensors": (
            shard_gib * (2 if shared else 1),
            f"weights {weights_gib:.1f} + largest file {shard_gib:.1f}{' twice' if shared else ''}{side}",
        ),
        "instanttensor": (INSTANT_GIB, f"weights {weights_gib:.1f} + buffers {INSTANT_GIB}{side}"),
    }
    first = "safetensors" if named in MMAP else named
    if first not in known:
        yield Loader(first, None, limit_gib, "no rule for this load-format")
    for name in sorted(known, key=lambda name: name != first):
        extra_gib, terms = known[name]
        yield Loader(name, weights_gib + extra_gib + host_gib, limit_gib, terms)
