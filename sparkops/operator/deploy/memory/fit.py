"""Predict whether a recipe fits a node: weights, KV cache and overhead against its memory. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, floor

from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.engines.calculators import CALCULATORS
from sparkops.engines.needs import GRAPHS, Layout, Loader, Loading, Needs, Served, Term, Weights
from sparkops.operator.build.weights.description import Description
from sparkops.serving.memory.bound import bound, cache_bytes
from sparkops.serving.memory.pools import Room
from sparkops.serving.memory.relief import FLOOR_GIB
from sparkops.units import GIB

HEADROOM_GIB = 8.0
"""GiB that a safe utilization leaves free: 8 to 10 in spark-vllm-docker, NVIDIA's playbook and sparkrun."""
CONTEXT_GIB = 0.5
"""GiB of a discrete GPU that an engine has outside its budget besides CUDA graphs: 24938 MiB of a process with 0.3 of
an H100, which had captured 0.11 GiB of graphs (nvidia-smi, vLLM 0.23.0)."""
UNSURE = 0.1
"""Share of the KV cache from which its prediction is a range."""


@dataclass(frozen=True)
class Measured:
    """What the engine reported at a start of the same recipe, perhaps with another share. GiB of one rank."""

    weights_gib: float
    cache_gib: float
    share: float
    """Its share of the node's or GPU's memory."""
    graphs_gib: float = 0.0


@dataclass(frozen=True)
class Fit:
    """Memory of one rank on one node in GiB. `share` is None if no utilization sets it."""

    engine: str
    room: Room
    origin: str
    layers: str
    layout: Layout
    weights_gib: float
    terms: tuple[Term, ...]
    outside_gib: float
    """CUDA graphs that the engine does not count in its share."""
    budget_gib: float
    cache_gib: float
    most_cache_gib: float
    """The KV cache where the overhead is the least that a start reserves."""
    measured: bool
    """Whether weights and overhead are those of the last start."""
    share: float | None
    reserve_gib: float
    loaders: tuple[Loader, ...]
    note: str = ""
    """Why a figure of the last start is missing; empty if none is."""

    @property
    def unsure(self) -> bool:
        """Whether the size of the KV cache is only known as a range: from `cache_gib` to `most_cache_gib`."""
        return self.most_cache_gib - self.cache_gib > UNSURE * max(self.cache_gib, 0.0)

    @property
    def overhead_gib(self) -> float:
        """GiB inside the budget besides weights and KV cache."""
        return sum(term.gib for term in self.terms) - self.outside_gib

    @property
    def taken_gib(self) -> float:
        """GiB that the release takes of the node: the engine's budget, graphs outside of it, and the host side."""
        return self.budget_gib + self.outside_gib + self.room.host_gib

    @property
    def requests(self) -> float:
        """Requests of the full context that fit in the KV cache."""
        return self.layout.requests(self.cache_gib)

    @property
    def tokens(self) -> int:
        """Tokens of those requests."""
        return self.layout.tokens(self.cache_gib)

    @property
    def safe_share(self) -> float | None:
        """The largest utilization that leaves the headroom free; None if none is used."""
        room = self.room
        headroom_gib = HEADROOM_GIB if room.shared else 0.0
        gib = room.total_gib - room.host_gib - self.outside_gib - headroom_gib
        return None if self.share is None else max(floor(gib / room.total_gib * 100) / 100, 0.0)

    @property
    def least_share(self) -> float | None:
        """The smallest utilization whose KV cache fits one request of the full context."""
        gib = self.weights_gib + self.overhead_gib + self.layout.request_gib
        return None if self.share is None else ceil(gib / self.room.total_gib * 100) / 100

    @property
    def together_gib(self) -> float:
        """GiB left beside the old release, this one and the recipe's reserve; negative: too little."""
        old_gib = self.room.old_gib or self.taken_gib
        kept_gib = self.reserve_gib if self.room.shared else 0.0
        return self.room.total_gib - old_gib - self.taken_gib - kept_gib

    @property
    def now_gib(self) -> float:
        """GiB left of the available memory; negative: too little."""
        return self.room.available_gib - self.taken_gib

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why the recipe does not fit the node even if nothing else runs there."""
        return tuple(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.requests < 1:
            need, window = self.layout.request_gib, self.layout.window
            yield f"KV cache {self.cache_gib:.1f} GiB, one request of {window} tokens needs {need:.1f} GiB"
        if (short_gib := self.taken_gib - self.room.total_gib) > 0:
            yield f"{self.taken_gib:.1f} GiB taken, {self.room.total_gib:.1f} GiB in total: {short_gib:.1f} GiB short"
        if self.loaders[0].safe is False:
            yield f"load-format {self.loaders[0]}"


def fit(recipe: Recipe, description: Description, room: Room, measured: Measured | None = None) -> Fit:
    """Return the memory of one rank on a node, from what its last start there `measured`, or else from rules.

    The engine must have a calculator. Raises ValueError for an unsupported model or argument.
    """
    weights = Weights(description.config, description.tensors, description.largest_bytes)
    needs = CALCULATORS[recipe.engine].needs(served(recipe), weights, room.total_gib)
    cpu = recipe.backend == "cpu"  # its overhead is part of the host side
    if needs.host_gib is not None:
        room = replace(room, host_gib=needs.host_gib)
    weights_gib, terms = needs.weights_gib, needs.terms
    if measured:
        weights_gib, terms = measured.weights_gib, _measured(measured, room, graphs_counted=needs.graphs_counted)
    outside_gib = 0.0 if needs.graphs_counted else sum(term.gib for term in terms if term.name == GRAPHS)
    if not room.shared and not cpu:  # OUTSIDE_GIB has the graphs of a model as those that were measured
        room = replace(room, host_gib=max(room.host_gib - outside_gib, CONTEXT_GIB))
    inside_gib = weights_gib + sum(term.gib for term in terms) - outside_gib
    budget_gib, share = _budget(recipe, room, needs, inside_gib)
    cache_gib = budget_gib - inside_gib
    sure = cpu or share is None or measured is not None
    known = needs.loaders(Loading(weights_gib, room.host_gib, room.total_gib, FLOOR_GIB, room.shared))
    return Fit(
        engine=recipe.engine,
        room=room,
        origin=description.origin,
        layers=needs.layers,
        layout=needs.layout,
        weights_gib=weights_gib,
        terms=terms,
        outside_gib=outside_gib,
        budget_gib=budget_gib,
        cache_gib=cache_gib,
        most_cache_gib=cache_gib if sure else max(cache_gib, budget_gib - weights_gib - needs.least_gib),
        measured=measured is not None,
        share=share,
        reserve_gib=recipe.swap.reserve_gib,
        loaders=tuple(known)[:1] if cpu else tuple(known),
    )


def served(recipe: Recipe) -> Served:
    """Return what a recipe tells its engine."""
    serve = recipe.serve
    release, cpu, stages = recipe.image.requirement, recipe.backend == "cpu", serve.pipeline_parallel
    return Served(serve.args, serve.env, serve.tensor_parallel, release, cpu, stages)


def _measured(measured: Measured, room: Room, *, graphs_counted: bool) -> tuple[Term, ...]:
    """Return what a start reserved besides weights and KV cache: the rest of its budget, of the same node or GPU."""
    rest_gib = max(measured.share * room.total_gib - measured.weights_gib - measured.cache_gib, 0.0)
    graphs = () if graphs_counted else (Term(GRAPHS, measured.graphs_gib),)
    return Term("measured", rest_gib), *graphs


def _budget(recipe: Recipe, room: Room, needs: Needs, inside_gib: float) -> tuple[float, float | None]:
    """Return the GiB of the engine's budget, and the utilization that sets it."""
    if needs.cache_gib is not None:
        return inside_gib + needs.cache_gib, None
    most = bound(recipe, room.total_gib, 0.0)
    if most is None or most.share is None:
        return inside_gib + cache_bytes(recipe) / GIB, None
    return most.gib, most.share


def lower(fit: Fit, name: str) -> str:
    """Return the next step for a recipe that does not fit."""
    engine = ENGINES[fit.engine]
    if fit.share is None:
        return f"Lower {engine.cache_flag} or {engine.window_flag} of {name}, or use a smaller model."
    safe, least = fit.safe_share or 0.0, fit.least_share or 1.0
    if least <= safe:
        return f"sparkops fit {name} --set args.{engine.share_flag}={safe:g}"
    return f"Lower {engine.window_flag} of {name}, use kv-cache-dtype fp8, more nodes, or a smaller model."
