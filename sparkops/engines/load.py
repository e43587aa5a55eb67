"""Load of an engine, from the figures of its /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RUNNING, WAITING, GENERATED = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total"
KV_USE = "vllm:kv_cache_usage_perc"
FIRST_TOKEN = ("vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_count")
PREFIX = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")
DRAFT = ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total")
STEPS = (
    "vllm:iteration_tokens_total_count",
    "vllm:prompt_tokens_total",
    GENERATED,
    KV_USE,
    RUNNING,
    WAITING,
)
"""Figures that change with a step. One that only reads a piece of a long prompt changes the cache's use."""
METRICS = (RUNNING, WAITING, GENERATED, KV_USE, *FIRST_TOKEN, *PREFIX, *DRAFT, *STEPS[:2])


@dataclass(frozen=True)
class Load:
    """Requests in the batch of an engine, requests queued, tokens generated since its start."""

    running: int
    waiting: int
    generated: int


@dataclass(frozen=True)
class Rates:
    """Speed of an engine. Shares are 0 to 1; None: the engine does not report it, or nothing was counted yet."""

    tok_s: float = 0.0
    """Tokens generated per second."""
    ttft_s: float | None = None
    """Mean seconds to the first token."""
    kv_use: float | None = None
    """Share of the KV cache in use."""
    prefix_hits: float | None = None
    """Share of the prompt tokens that were in the prefix cache."""
    draft_accepted: float | None = None
    """Share of the drafted tokens that were accepted."""


UNKNOWN = Rates()


def read(sums: Mapping[str, float]) -> Load:
    """Return the load from the sum of each metric. Raises ValueError when they are not vLLM's."""
    if RUNNING not in sums:
        raise ValueError(f"no {RUNNING} among the metrics")
    return Load(int(sums[RUNNING]), int(sums.get(WAITING, 0)), int(sums.get(GENERATED, 0)))


def rates(first: Mapping[str, float], second: Mapping[str, float], took_s: float) -> Rates:
    """Return the speed between two samples `took_s` apart; means and shares without a count since the start."""
    return Rates(
        tok_s=max(0.0, second.get(GENERATED, 0.0) - first.get(GENERATED, 0.0)) / took_s,
        ttft_s=_quotient(FIRST_TOKEN, first, second),
        kv_use=second.get(KV_USE),
        prefix_hits=_quotient(PREFIX, first, second),
        draft_accepted=_quotient(DRAFT, first, second),
    )


def _quotient(names: tuple[str, str], first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    part, total = (second.get(name, 0.0) - first.get(name, 0.0) for name in names)
    if total <= 0.0:
        part, total = (second.get(name, 0.0) for name in names)
    return part / total if total > 0.0 else None
