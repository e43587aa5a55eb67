"""The memory of a node that a release is compared with. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkops.config.recipe import Recipe
from sparkops.docker.facts import Container
from sparkops.memory.pools import pools
from sparkops.nodes.host import HostFacts


@dataclass(frozen=True)
class Room:
    """Memory of one node in GiB; of the GPU, if it has its own (`shared` False).

    `host_gib`: what an engine takes beside its share; `old_gib`: claims of the containers `old`, which run there.
    """

    node: str
    total_gib: float
    available_gib: float
    host_gib: float
    shared: bool
    old_gib: float = 0.0
    old: tuple[str, ...] = ()


def room(node: str, recipe: Recipe, host: HostFacts, containers: Sequence[Container]) -> Room:
    """Return the memory that the recipe's engine would take from. Raises ValueError for a GPU without a reading."""
    pool = pools(recipe, host)[0]
    if not pool.claimed:
        raise ValueError(f"GPU memory: no reading of {host.gpu_model}: expected `total, free` of nvidia-smi")
    running = [container for container in containers if container.running]
    return Room(
        node=node,
        total_gib=pool.total_gib,
        available_gib=pool.available_gib,
        host_gib=pool.beside_gib,
        shared=not pool.of,
        old_gib=sum(container.claim_gib for container in running),
        old=tuple(container.name for container in running),
    )
