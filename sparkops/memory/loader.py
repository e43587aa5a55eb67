"""Memory that loading takes for a while, by vLLM's load-format: which loader is safe on a node. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkops.memory.relief import FLOOR_GIB

MMAP = ("auto", "hf", "safetensors")
INSTANT_GIB = 4.4
"""GiB that InstantTensor keeps on each of two Sparks: MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204."""


@dataclass(frozen=True)
class Loader:
    """One load-format. `peak_gib` is the most that the node holds while it loads; None where no rule is known."""

    name: str
    peak_gib: float | None
    limit_gib: float
    terms: str

    @property
    def safe(self) -> bool | None:
        """Whether the peak leaves the node its floor; None for a loader without a rule."""
        return None if self.peak_gib is None else self.peak_gib <= self.limit_gib

    def __str__(self) -> str:
        if self.peak_gib is None:
            return f"{self.name}: unknown: {self.terms}"
        relation = "within" if self.safe else "NOT SAFE: above"
        return f"{self.name}: {self.terms} = {self.peak_gib:.1f} GiB, {relation} {self.limit_gib:.1f} GiB"


def loaders(
    named: str, weights_gib: float, shard_gib: float, host_gib: float, total_gib: float, *, shared: bool
) -> Iterator[Loader]:
    """Yield the loaders that are known, the one of the recipe first. `shared`: CPU and GPU have one memory.

    fastsafetensors copies whole files to the GPU (fastsafetensors_weights_iterator of vLLM 0.23.0) and reads them
    through the page cache, which a GB10 counts as used. So one file counts twice there: 67 GB in 14 files loaded at
    0.85, 78 GB in 2 files froze the host at 0.84 (forum post on AutoRound). The default maps files; clean pages are
    given back.
    """
    host_gib, floor_gib = (host_gib, FLOOR_GIB) if shared else (0.0, 0.0)
    limit_gib, side = total_gib - floor_gib, f" + host side {host_gib:g}" if host_gib else ""
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
