"""The memory of vLLM: weights, KV cache and overhead of one rank. Only the operator's side imports it."""

from __future__ import annotations

from functools import partial

from sparkops.engines.needs import Calculator, Needs, Served, Weights
from sparkops.engines.vllm.memory import arguments, cache, overhead
from sparkops.engines.vllm.memory.shape import parse, stage
from sparkops.engines.vllm.memory.weights import rank_gib
from sparkops.units import GIB


def needs(served: Served, weights: Weights, total_gib: float) -> Needs:
    """Return what the largest rank needs. Raises ValueError for an unsupported model or argument."""
    model = parse(weights.config)
    shape, share = stage(model, served.stages)
    args = arguments.read(served, shape, total_gib)
    drafts = args.serving.draft_tokens > 0
    cpu = served.cpu
    rope_gib = 0.0 if cpu else shape.rope_elements * cache.BYTES[args.serving.model_dtype] / GIB
    return Needs(
        layers=cache.kinds((*shape.layers, *(shape.drafts if drafts else ()))),
        layout=cache.layout(shape, args.serving),
        weights_gib=rank_gib(weights.tensors, served.ranks, shape.kv_heads, drafts=drafts, share=share) + rope_gib,
        terms=() if cpu else overhead.terms(shape, args.serving, args.requests, args.graphs, v2=args.v2),
        least_gib=0.0 if cpu else overhead.least_gib(shape, args.serving, args.requests),
        graphs_counted=args.graphs_counted,
        loaders=partial(overhead.loaders, args.loader, weights.largest_bytes / GIB),
        host_gib=overhead.CPU_HOST_GIB if cpu else None,
        cache_gib=arguments.cpu_space_gib(served) if cpu else None,
    )


VLLM_MEMORY = Calculator("vLLM", needs)
