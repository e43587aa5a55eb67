"""vLLM's /metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from sparkops.engine.load import GENERATED, RUNNING, WAITING, Load, read

STEPS = (
    "vllm:iteration_tokens_total_count",
    "vllm:prompt_tokens_total",
    GENERATED,
    "vllm:kv_cache_usage_perc",
    RUNNING,
    WAITING,
)
"""What an engine says after each of its steps. One that only reads a piece of a long prompt changes the cache's use."""


def parse(text: str) -> Load:
    """Read vLLM's metrics, the engines of one server added up. Raises ValueError when they are not vLLM's."""
    sums: dict[str, float] = {}
    for name, value in _said(text):
        sums[name] = sums.get(name, 0.0) + value
    return read(sums)


def steps(text: str) -> tuple[float, ...]:
    """Figures of which one or another changes with each step of an engine. Empty for a page of something else."""
    try:
        return tuple(value for _, value in _said(text))
    except ValueError:
        return ()


def _said(text: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(text):
        yield from ((sample.name, sample.value) for sample in family.samples if sample.name in STEPS)
