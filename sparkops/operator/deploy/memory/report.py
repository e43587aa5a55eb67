"""Print a fit as text or JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.engines import ENGINES
from sparkops.engines.calculators import CALCULATORS
from sparkops.engines.needs import GRAPHS
from sparkops.operator.deploy.memory.fit import Fit

SHOWN_GIB = 0.05
"""Smallest term that is printed, in GiB."""


def lines(fit: Fit) -> Iterator[str]:
    """Yield the memory of one rank on one node, line by line, the verdict first."""
    room = fit.room
    yield f"{room.node}: {'; '.join(fit.problems) if fit.problems else 'fits an empty node'}"
    yield from (f"  {name:<14}{text}" for name, text in _rows(fit))


def _rows(fit: Fit) -> Iterator[tuple[str, str]]:
    room, layout = fit.room, fit.layout
    yield "model", f"{fit.layers} ({fit.origin})"
    yield "weights", f"{fit.weights_gib:.1f} GiB per rank"
    inside = [term for term in fit.terms if term.gib >= SHOWN_GIB and not (fit.outside_gib and term.name == GRAPHS)]
    parts = ", ".join(f"{term.name} {term.gib:.1f}" for term in inside)
    if fit.measured:
        name = CALCULATORS[fit.engine].name
        yield "overhead", f"{fit.overhead_gib:.1f} GiB, as {name} reported at the last start here"
    else:
        yield "overhead", f"{fit.overhead_gib:.1f} GiB estimated" + (f" ({parts})" if parts else "")
    yield "KV cache", _cache(fit)
    blocks = f"{layout.block_bytes / 2**20:.2f} MiB per block of {layout.block} tokens"
    yield "", f"{fit.requests:.2f} requests of {layout.window:,} tokens, {layout.request_gib:.2f} GiB each; {blocks}"
    graphs = f", {GRAPHS} {fit.outside_gib:.1f} GiB" if fit.outside_gib else ""
    side = "host side" if room.shared else "outside"
    yield side, f"{room.host_gib:.1f} GiB{graphs} beside the engine's budget"
    yield "total", f"{fit.taken_gib:.1f} of {room.total_gib:.1f} GiB"
    if fit.share is not None:
        yield "utilization", f"{fit.share:g}; safe up to {fit.safe_share:g}, one request needs {fit.least_share:g}"
    yield from (("loader" if not number else "", str(loader)) for number, loader in enumerate(fit.loaders))
    if fit.note:
        yield "note", fit.note
    yield "now", f"{room.available_gib:.1f} GiB available: {_margin(fit.now_gib)}"
    yield "old and new", f"{_old(fit)}: {_margin(fit.together_gib)}"


def _margin(gib: float) -> str:
    return f"{gib:.1f} GiB left" if gib >= 0 else f"{-gib:.1f} GiB short"


def _cache(fit: Fit) -> str:
    """Return the size of the cache; as a range where a start may reserve much less than the estimate."""
    if not fit.unsure:
        return f"{fit.cache_gib:.1f} GiB = {fit.tokens:,} tokens"
    most = fit.layout.tokens(fit.most_cache_gib)
    return f"{fit.cache_gib:.1f} to {fit.most_cache_gib:.1f} GiB = {fit.tokens:,} to {most:,} tokens"


def _old(fit: Fit) -> str:
    kept = (f", {fit.reserve_gib:g} GiB reserve" if fit.room.shared else "") + ", nothing else"
    if fit.room.old_gib:
        return f"{', '.join(fit.room.old)} ({fit.room.old_gib:g} GiB claimed) and this release{kept}"
    return f"two releases of this size{kept}"


def as_json(fit: Fit) -> dict[str, object]:
    return {
        "node": fit.room.node,
        "fits": not fit.problems,
        "problems": list(fit.problems),
        "origin": fit.origin,
        "weights_gib": round(fit.weights_gib, 2),
        "measured": fit.measured,
        "overhead_gib": {term.name: round(term.gib, 2) for term in fit.terms},
        "kv_cache": {
            "gib": round(fit.cache_gib, 2),
            "most_gib": round(fit.most_cache_gib, 2),
            "tokens": fit.tokens,
            "requests": round(fit.requests, 2),
            "request_gib": round(fit.layout.request_gib, 3),
            "block_tokens": fit.layout.block,
            "block_bytes": fit.layout.block_bytes,
        },
        "host_gib": round(fit.room.host_gib + fit.outside_gib, 2),
        "taken_gib": round(fit.taken_gib, 2),
        "total_gib": round(fit.room.total_gib, 2),
        "available_gib": round(fit.room.available_gib, 2),
        "left_now_gib": round(fit.now_gib, 2),
        "left_with_old_gib": round(fit.together_gib, 2),
        ENGINES[fit.engine].share_flag: {"set": fit.share, "safe": fit.safe_share, "least": fit.least_share},
        "loaders": [
            {"load_format": loader.name, "safe": loader.safe, "peak_gib": loader.peak_gib and round(loader.peak_gib, 2)}
            for loader in fit.loaders
        ],
    }
