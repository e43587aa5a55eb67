"""vLLM's /metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from sparkops.engines.load import STEPS, Load, read


def parse(text: str) -> Load:
    """Read vLLM's metrics, summed over the engines of one server. Raises ValueError when they are not vLLM's."""
    sums: dict[str, float] = {}
    for name, value in _figures(text):
        sums[name] = sums.get(name, 0.0) + value
    return read(sums)


def steps(text: str) -> tuple[float, ...]:
    """Return figures of which some change with each step of an engine. Empty for a page of something else."""
    try:
        return tuple(value for _, value in _figures(text))
    except ValueError:
        return ()


def _figures(text: str) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(text):
        yield from ((sample.name, sample.value) for sample in family.samples if sample.name in STEPS)
