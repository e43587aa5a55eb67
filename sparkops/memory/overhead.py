"""What an engine takes beside weights and KV cache: estimates, each with its basis. Pure.

No formula of vLLM gives these: it measures them at each start. The figures here are fitted to few published starts, so
they are good to a few GiB; docs/memory.md compares the sum with measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.memory.cache import Serving
from sparkops.memory.shape import Shape
from sparkops.nodes.host import GIB

RUNTIME_GIB = 0.4
VISION_GIB = 1.6
LOGIT_BYTES = 10
GRAPH_GIB, GRAPH_SIZE_GIB = 0.134, 0.0227
MOST_CAPTURED = 512
GRAPHS = "CUDA graphs"
CPU_HOST_GIB = 2.4
"""Host side of vLLM on a CPU: recipes/tiny-qwen3-cpu.yaml, measured in three processes with 0.32.0."""


@dataclass(frozen=True)
class Term:
    """One part of the memory in GiB, and where its figure comes from."""

    name: str
    gib: float
    basis: str


def terms(shape: Shape, serving: Serving, requests: int, graphs: int) -> tuple[Term, ...]:
    """Return the parts. `requests`: max-num-seqs; `graphs`: the largest batch of a CUDA graph, 0 without graphs."""
    return (
        Term("activations", _activations(shape, serving), f"{serving.batched_tokens} tokens at once, 16 bits"),
        Term(
            "sampler",
            min(requests, serving.batched_tokens) * shape.vocabulary * LOGIT_BYTES / GIB,
            f"{requests} x {shape.vocabulary} logits x {LOGIT_BYTES} bytes, fitted to the start of 122b-autoround",
        ),
        Term("vision", VISION_GIB if shape.vision else 0.0, "fitted to the start of 122b-nvfp4-sehyo"),
        Term("runtime", RUNTIME_GIB, "CUDA context, NCCL, workspaces: 0.17 to 0.32 on an H100, FlashInfer's 0.39"),
        Term(GRAPHS, graph_gib(graphs), "linear through two starts: 0.27 GiB for 6 sizes, 1.29 for 51"),
    )


def _activations(shape: Shape, serving: Serving) -> float:
    """Return GiB of a forward pass: a few vectors of the residual stream, and those of every expert of a token."""
    experts = shape.experts_per_token * (shape.hidden + 3 * shape.intermediate // serving.ranks)
    return serving.batched_tokens * 2 * (8 * shape.hidden + experts) / GIB


def captured(requests: int, draft_tokens: int) -> int:
    """Return the largest batch that vLLM captures: _set_cudagraph_sizes in vllm/config/vllm.py of 0.23.0."""
    return min(requests * (1 + draft_tokens) * 2, MOST_CAPTURED)


def graph_gib(largest: int) -> float:
    """Return GiB of CUDA graphs: 1, 2, 4, then every 8th batch size up to 256 and every 16th up to `largest`."""
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, MOST_CAPTURED + 1, 16)]
    count = sum(size <= largest for size in sizes)
    return GRAPH_GIB + GRAPH_SIZE_GIB * count if count else 0.0
