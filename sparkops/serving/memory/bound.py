"""Compare the maximum memory of a recipe's engine with the total of a node. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor

from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.engines.sizes import scaled
from sparkops.errors import PlanRefused
from sparkops.units import GIB

HOST_GIB = 5.0
"""GiB of the host side: memory of an engine outside its own budget. The least of 5 to 5.6 in the sources, so that no
valid claim is refused."""
OUTSIDE_GIB = 2.4
"""GiB of a discrete GPU that an engine takes outside its budget: CUDA context, CUDA graphs of the V2 model runner,
workspaces of a warm engine. The most of 2.0 to 2.4 measured on an H100 with vLLM 0.23.0: no claim may be below it."""


@dataclass(frozen=True)
class Bound:
    """Maximum GiB of an engine, with its terms and the flag that sets it; with its share, if the flag is one."""

    gib: float
    terms: str
    flag: str
    share: float | None = None


def bound(
    recipe: Recipe, total_gib: float, host_gib: float = HOST_GIB, beside: str = "of the host side"
) -> Bound | None:
    """Return the bound on a node or GPU of `total_gib`; None where no argument sets one: on a CPU, and for an engine
    that takes no share.

    `host_gib`: GiB beside the engine's budget, which `beside` names.

    With the bytes of its KV cache an engine ignores its share: the bound is then the sum of weights and cache. Raises
    ValueError for an argument that is not a number in its range.
    """
    if recipe.backend == "cpu" or not ENGINES[recipe.engine].share_flag:
        return None
    beside = f" + {host_gib:g} GiB {beside}" if host_gib else ""
    engine = ENGINES[recipe.engine]
    if engine.cache_flag in recipe.serve.args:
        cache_gib = cache_bytes(recipe) / GIB
        weights_gib = (recipe.model.size_gb or 0) * 1e9 / GIB / recipe.serve.ranks
        weights = f" + {weights_gib:.1f} GiB of weights" if weights_gib else ""
        terms = f"{engine.cache_flag} {cache_gib:.1f} GiB{weights}{beside}"
        return Bound(cache_gib + weights_gib + host_gib, terms, engine.cache_flag)
    flag, share = engine.share_flag, _share(recipe)
    return Bound(share * total_gib + host_gib, f"{flag} {share:g} x {total_gib:.1f} GiB{beside}", flag, share)


def _share(recipe: Recipe) -> float:
    flag = ENGINES[recipe.engine].share_flag
    given = recipe.serve.args.get(flag, ENGINES[recipe.engine].share(recipe.image.requirement))
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"{flag}: expected a number above 0 and up to 1, got {given!r}")
    return share


def cache_bytes(recipe: Recipe) -> float:
    """Return the bytes of its KV cache that a recipe states. Raises ValueError for a value that is not a size."""
    flag = ENGINES[recipe.engine].cache_flag
    size = scaled(recipe.serve.args[flag], "kKmMgGtT")
    if size is None:
        raise ValueError(f"{flag}: expected bytes such as 20G, got {recipe.serve.args[flag]!r}")
    return size


def refusals(
    recipe: Recipe, node: str, total_gib: float, host_gib: float = HOST_GIB, of: str = ""
) -> Iterator[PlanRefused]:
    """Yield why a recipe does not fit a node of `total_gib` without other containers. `of`: ` of GPU memory`."""
    name, claim, total = recipe.name, recipe.memory.claim_gib, f"{total_gib:.1f} GiB{of} in total"
    if claim > total_gib:
        problem = f"{node}: {claim:g} GiB claimed, {total}: {claim - total_gib:.1f} GiB short"
        yield PlanRefused(problem, next_step="Use a node with more memory, or a smaller model: sparkops recipes --fits")
        return
    try:
        most = bound(recipe, total_gib, host_gib, "outside its budget" if of else "of the host side")
    except ValueError as error:
        yield PlanRefused(f"{node}: serve.args.{error}", next_step=f"Change it in {name}.")
        return
    if most is None:
        return
    room, gib = total_gib - host_gib, round(most.gib, 1)
    if gib > round(total_gib, 1):
        problem = f"{node}: {most.terms} = {gib} GiB, {total}: {gib - total_gib:.1f} GiB short"
        yield PlanRefused(problem, next_step=_lower(name, most, room / total_gib))
    elif gib > claim:
        problem = f"{node}: memory.claim_gib is {claim:g}, less than the engine can take: {most.terms} = {gib} GiB"
        lower = _lower(name, most, (claim - host_gib) / total_gib)
        yield PlanRefused(problem, next_step=f"{lower} Or claim {ceil(gib)} GiB: --set memory.claim_gib={ceil(gib)}")


def _lower(name: str, most: Bound, share: float) -> str:
    """Return the next step: the largest value that fits."""
    if most.share is None or share <= 0:
        return f"Lower serve.args.{most.flag} of {name}."
    return f"Set serve.args.{most.flag} of {name} to {floor(share * 100) / 100:g} or less."
