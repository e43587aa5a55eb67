"""The page of an engine's /metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from prometheus_client.parser import text_string_to_metric_families

from sparkops.engines.load import KNOWN, METRICS, Load, read

STEPS = frozenset(name for figures in KNOWN for name in figures.steps)
STEMS = tuple(name.removesuffix("_total") for name in (*METRICS, *STEPS))
"""How the names of these figures begin: the parser adds `_total` to counters without it."""
READ = (*STEMS, *(f"# TYPE {stem}" for stem in STEMS))
LONGEST_LINE, MOST_LINES = 4096, 10_000
"""Limits of what is parsed of a foreign page; its parser takes quadratic time for one line. vLLM's longest line of
figures has some 100 characters, and a page some 10 lines of them for each engine."""


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
    for family in text_string_to_metric_families("\n".join(_lines(text))):
        yield from ((sample.name, sample.value) for sample in family.samples if sample.name in names)


def _lines(text: str) -> list[str]:
    """Return the lines of a page that are read. Raises ValueError for too many."""
    lines = [line for line in text.split("\n") if line.startswith(READ) and len(line) <= LONGEST_LINE]
    if len(lines) > MOST_LINES:
        raise ValueError(f"more than {MOST_LINES} lines of figures")
    return lines
