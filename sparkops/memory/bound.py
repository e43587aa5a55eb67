"""The most memory that a recipe's engine may take of a node, compared with the node's own total. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from sparkops.config.engine import default_share
from sparkops.config.recipe import Recipe
from sparkops.errors import PlanRefused
from sparkops.nodes.host import GIB

HOST_GIB = 5.0
"""GiB that an engine takes beside what it counts itself. Sources state 5 to 5.6; the least, so no sound claim fails."""
SHARE, KV_BYTES = "gpu-memory-utilization", "kv-cache-memory-bytes"
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""vLLM's own suffixes: human_readable_int in vllm/utils/argparse_utils.py."""


@dataclass(frozen=True)
class Bound:
    """Most GiB that an engine may take, and the sum behind it. `share` is None if no utilization sets it."""

    gib: float
    terms: str
    share: float | None = None


def bound(recipe: Recipe, total_gib: float, host_gib: float = HOST_GIB) -> Bound | None:
    """Return the bound on a node or GPU of `total_gib`; None on a CPU, where no argument states one.

    With kv-cache-memory-bytes vLLM ignores its utilization (vllm/config/cache.py): weights and that cache are then
    the least it takes. Raises ValueError for an argument that is not a number in its range.
    """
    if recipe.backend == "cpu":
        return None
    beside = f" + {host_gib:g} GiB of the host side" if host_gib else ""
    if KV_BYTES in recipe.serve.args:
        cache_gib = cache_bytes(recipe.serve.args) / GIB
        weights_gib = (recipe.model.size_gb or 0) * 1e9 / GIB / recipe.serve.tensor_parallel
        weights = f" + {weights_gib:.1f} GiB of weights" if weights_gib else ""
        return Bound(cache_gib + weights_gib + host_gib, f"{KV_BYTES} {cache_gib:.1f} GiB{weights}{beside}")
    share = _share(recipe)
    return Bound(share * total_gib + host_gib, f"{SHARE} {share:g} x {total_gib:.1f} GiB{beside}", share)


def _share(recipe: Recipe) -> float:
    given = recipe.serve.args.get(SHARE, default_share(recipe.engine, recipe.image.vllm))
    try:
        share = float(given)
    except (TypeError, ValueError):
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"{SHARE}: expected a number above 0 and up to 1, got {given!r}")
    return share


def cache_bytes(args: Mapping[str, Any]) -> float:
    """Return the bytes of kv-cache-memory-bytes. Raises ValueError for a value that is not a size."""
    size = scaled(args[KV_BYTES], "kKmMgGtT")
    if size is None:
        raise ValueError(f"{KV_BYTES}: expected bytes such as 20G, got {args[KV_BYTES]!r}")
    return size


def scaled(value: object, suffixes: str) -> float | None:
    """Return a number that may end in one of vLLM's suffixes, such as 20G or 128k; None for anything else."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)([{suffixes}]?)", str(value))
    return float(match[1]) * UNITS.get(match[2], 1) if match else None


def refusals(
    recipe: Recipe, node: str, total_gib: float, host_gib: float = HOST_GIB, of: str = ""
) -> Iterator[PlanRefused]:
    """Yield why a recipe does not fit a node of `total_gib` (`of GPU memory`, where so), whatever else runs there."""
    name, claim, total = recipe.name, recipe.memory.claim_gib, f"{total_gib:.1f} GiB{of} in total"
    if claim > total_gib:
        problem = f"{node}: {claim:g} GiB claimed, {total}: {claim - total_gib:.1f} GiB short"
        yield PlanRefused(problem, next_step="Use a node with more memory, or a smaller model: sparkops recipes")
        return
    try:
        most = bound(recipe, total_gib, host_gib)
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
        problem = f"{node}: memory.claim_gib is {claim:g}, less than the engine may take: {most.terms} = {gib} GiB"
        lower = _lower(name, most, (claim - host_gib) / total_gib)
        yield PlanRefused(problem, next_step=f"{lower} Or claim {ceil(gib)} GiB: --set memory.claim_gib={ceil(gib)}")


def _lower(name: str, most: Bound, share: float) -> str:
    """Return the next step: the largest value that fits."""
    if most.share is None or share <= 0:
        return f"Lower serve.args.{KV_BYTES if most.share is None else SHARE} of {name}."
    return f"Set serve.args.{SHARE} of {name} to {floor(share * 100) / 100:g} or less."
