"""The page of an engine's /metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from prometheus_client.parser import text_string_to_metric_families

from sparkops.engines.load import KNOWN, METRICS, Load, read

STEPS = frozenset(name for figures in KNOWN for name in figures.steps)


def parse(text: str) -> Load:
    """Read the metrics, summed over the engines of one server. Raises ValueError when they are those of no engine."""
    sums: dict[str, float] = {}
    for name, value in _figures(text, METRICS):
        sums[name] = sums.get(name, 0.0) + value
    return read(sums)


def steps(text: str) -> tuple[float, ...]:
    """Return figures of which some change with each step of an engine. Empty for a page of something else."""
    try:
        return tuple(value for _, value in _figures(text, STEPS))
    except ValueError:
        return ()


def _figures(text: str, names: Collection[str]) -> Iterator[tuple[str, float]]:
    for family in text_string_to_metric_families(text):
        yield from ((sample.name, sample.value) for sample in family.samples if sample.name in names)
