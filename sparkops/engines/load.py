"""Load of an engine, from the figures of its /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkops.engines import ENGINES
from sparkops.engines.figures import Figures

KNOWN: tuple[Figures, ...] = tuple(dict.fromkeys(engine.figures for engine in ENGINES.values() if engine.figures))
METRICS = tuple(dict.fromkeys(name for figures in KNOWN for name in figures.names))
"""What is read of a page: a container does not name its engine, but no two engines have a name in common."""


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


def figures_of(sums: Mapping[str, float]) -> Figures | None:
    """Return the figures of the engine that has printed a page; None for a page of something else."""
    return next((figures for figures in KNOWN if not sums.keys().isdisjoint(figures.names)), None)


def by_meaning(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the sum of each metric by its meaning, a field of Figures. Empty for a page of something else."""
    names = figures.by_meaning if (figures := figures_of(sums)) else {}
    return {meaning: sums[name] for meaning, name in names.items() if name in sums}


def read(sums: Mapping[str, float]) -> Load:
    """Return the load from the sum of each metric. Raises ValueError when they are those of no engine."""
    known = by_meaning(sums)
    if "running" not in known:
        raise ValueError(f"no {' or '.join(figures.running for figures in KNOWN)} among the metrics")
    return Load(int(known["running"]), int(known.get("waiting", 0)), int(known.get("generated", 0)))


def steps(sums: Mapping[str, float]) -> tuple[float, ...]:
    """Return figures of which some change with each step of an engine."""
    figures = figures_of(sums)
    return tuple(sums.get(name, 0.0) for name in figures.steps) if figures else ()


def rates(first: Mapping[str, float], second: Mapping[str, float], took_s: float) -> Rates:
    """Return the speed between two samples `took_s` apart; means and shares without a count since the start."""
    earlier, later = by_meaning(first), by_meaning(second)
    return Rates(
        tok_s=max(0.0, later.get("generated", 0.0) - earlier.get("generated", 0.0)) / took_s,
        ttft_s=_quotient(("ttft_s", "ttft_count"), earlier, later),
        kv_use=later.get("kv_use"),
        prefix_hits=_quotient(("prefix_hits", "prefix_queries"), earlier, later),
        draft_accepted=_quotient(("draft_accepted", "drafted"), earlier, later),
    )


def _quotient(names: tuple[str, str], first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    part, total = (second.get(name, 0.0) - first.get(name, 0.0) for name in names)
    if total <= 0.0:
        part, total = (second.get(name, 0.0) for name in names)
    return part / total if total > 0.0 else None
