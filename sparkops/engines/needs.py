"""What an engine needs of a node's memory, as its calculator computes it: the same values for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.units import GIB

GRAPHS = "CUDA graphs"
"""Name of the term of the graphs, which an engine may have outside its budget."""


@dataclass(frozen=True)
class Served:
    """What a recipe tells its engine. `release`: the requirement of its package, None if the recipe states none."""

    args: Mapping[str, Any]
    env: Mapping[str, str]
    ranks: int
    """Ranks that share a layer (tensor parallel)."""
    release: str | None
    cpu: bool
    stages: int = 1
    """Stages of layers, each on ranks of its own (pipeline parallel)."""


@dataclass(frozen=True)
class Weights:
    """A checkpoint: its config.json, and bytes of tensors by name, with `*` for numbers (`+`: layers past the last)."""

    config: Mapping[str, Any]
    tensors: Mapping[str, int]
    largest_bytes: int
    """Bytes of the largest safetensors file."""


@dataclass(frozen=True)
class Layout:
    """Cache of one rank: every block holds one page of `layers` layers, of one of `groups` groups."""

    page_bytes: int
    layers: int
    groups: int
    block: int
    """Tokens of the smallest block of attention."""
    request_blocks: int
    """Blocks of one request of the full context."""
    window: int
    """Tokens of the full context."""

    @property
    def block_bytes(self) -> int:
        """Bytes of one block on one rank."""
        return self.page_bytes * self.layers

    @property
    def request_gib(self) -> float:
        """GiB of one request of the full context on one rank."""
        return self.request_blocks * self.block_bytes / GIB

    def blocks(self, cache_gib: float) -> int:
        return max(int(cache_gib * GIB) // self.block_bytes, 0)

    def requests(self, cache_gib: float) -> float:
        """Return the number of requests of the full context that fit, which vLLM logs as maximum concurrency."""
        return self.blocks(cache_gib) / self.request_blocks

    def tokens(self, cache_gib: float) -> int:
        """Return the tokens of those requests, which vLLM logs as GPU KV cache size."""
        return self.blocks(cache_gib) * self.window // self.request_blocks


@dataclass(frozen=True)
class Term:
    """One part of the memory in GiB."""

    name: str
    gib: float


@dataclass(frozen=True)
class Loader:
    """One format of loading. `peak_gib` is the peak on the node while it loads; None if unknown."""

    name: str
    peak_gib: float | None
    limit_gib: float
    terms: str

    @property
    def safe(self) -> bool | None:
        """Whether the peak is within the limit; None if unknown."""
        return None if self.peak_gib is None else self.peak_gib <= self.limit_gib

    def __str__(self) -> str:
        if self.peak_gib is None:
            return f"{self.name}: unknown: {self.terms}"
        relation = "within" if self.safe else "NOT SAFE: above"
        return f"{self.name}: {self.terms} = {self.peak_gib:.1f} GiB, {relation} {self.limit_gib:.1f} GiB"


@dataclass(frozen=True)
class Loading:
    """The memory of a node beside the weights while an engine loads. `floor_gib` must stay free."""

    weights_gib: float
    host_gib: float
    total_gib: float
    floor_gib: float
    shared: bool
    """Whether CPU and GPU have one memory."""


@dataclass(frozen=True)
class Needs:
    """Memory of one rank in GiB, before anything was measured."""

    layers: str
    """The layers as text, such as `12 full attention, 36 state`."""
    layout: Layout
    weights_gib: float
    terms: tuple[Term, ...]
    """The overhead; empty on a CPU, where it is part of the host side."""
    least_gib: float
    """The least overhead that a start reserves."""
    graphs_counted: bool
    """Whether the engine's share includes its graphs."""
    loaders: Callable[[Loading], Iterable[Loader]]
    """Return the known formats of loading, that of the recipe first."""
    host_gib: float | None = None
    """The host side, where the engine has another one than by default."""
    cache_gib: float | None = None
    """The KV cache, where the recipe states it and no share of a GPU sets it."""


@dataclass(frozen=True)
class Calculator:
    """The memory of one engine, computed from a recipe and a checkpoint.

    `needs` takes both and the GiB of the node or GPU, and raises ValueError for a model or an argument that it does not
    support.
    """

    name: str
    """Name of the engine in sentences."""
    needs: Callable[[Served, Weights, float], Needs]
