"""The last memory of a node: below what is left of it a green must end, before the whole machine does. Pure.

On a Spark, CPU and GPU share the memory, and who takes the last of it does not get an error: the machine wedges, with
everything on it. So a green that comes up is ended while Docker and sshd can still work.
"""

from __future__ import annotations

from sparkops.config.recipe import Recipe
from sparkops.plan.journal import Journal, Phase

FLOOR_GIB = 4.0
"""GiB that must stay available: a margin on reports of wedged GB10s (vllm#46307, vllm#56824), not a measured limit."""
LOOKS = 2
"""So many looks in a row, a second apart: one alone may be a moment of a file that is read."""


def floor_gib(recipe: Recipe) -> float:
    """GiB below which a green of this recipe is ended; less where the recipe itself keeps back less."""
    return min(FLOOR_GIB, recipe.swap.reserve_gib)


def must_end(journal: Journal, node: str, available_gib: float) -> str | None:
    """The container of a green on `node` that must end now. One that was promoted serves, and is left alone."""
    swap = journal.swap
    if swap is None or not Phase.START.order <= swap.phase.order < Phase.PROMOTE.order:
        return None
    here = swap.green.on(node)
    if here is None or available_gib >= floor_gib(Recipe.model_validate(swap.green.recipe)):
        return None
    return here.container
