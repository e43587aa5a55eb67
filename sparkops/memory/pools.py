"""The memory of a node that an engine takes from, by pool: what it needs of each, and what is available. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sparkops.config.engine import ENGINES
from sparkops.config.recipe import Recipe
from sparkops.docker.facts import Container
from sparkops.errors import PlanRefused
from sparkops.memory.bound import HOST_GIB, refusals
from sparkops.nodes.host import HostFacts


@dataclass(frozen=True)
class Pool:
    """One kind of memory of a node in GiB. `of` names it in a sentence; empty for the node's own memory."""

    total_gib: float
    available_gib: float
    need_gib: float
    of: str = ""
    beside_gib: float = HOST_GIB
    """GiB that an engine takes of it beside its share: the host side, if the GPU has no memory of its own."""
    claimed: bool = True
    """Whether the recipe's claim is for this pool; otherwise only the host side is."""

    @property
    def lack(self) -> str:
        """Missing GiB, with the arithmetic; empty if it suffices."""
        short_gib = self.need_gib - self.available_gib
        need = f"{self.need_gib:g} GiB {'claimed' if self.claimed else 'of the host side needed'}"
        lack = f"{need}, {self.available_gib:.1f} GiB{self.of} available: {short_gib:.1f} GiB short"
        return lack if short_gib > 0 else ""


def counts_page_cache(recipe: Recipe, host: HostFacts) -> bool:
    """Return whether page cache counts as used at the start of the engine: CUDA's free memory is MemFree on a GB10."""
    return recipe.backend != "cpu" and ENGINES[recipe.engine].weights and host.gpu_shares_memory


def pools(recipe: Recipe, host: HostFacts, *, dropped: bool = False) -> tuple[Pool, ...]:
    """Return the pool that the claim is compared with, then what else must hold.

    Beside a discrete GPU that is the host side; a GPU whose memory cannot be read is left to the engine's own check.
    Once the model's pages are `dropped`, it is MemFree where page cache counts as used.
    """
    claim_gib = recipe.memory.claim_gib
    if recipe.backend == "cpu" or not host.gpu_is_discrete:
        shared = Pool(host.memory_total_gib, host.memory_available_gib, claim_gib)
        if not dropped or host.memory_free_gib is None or not counts_page_cache(recipe, host):
            return (shared,)
        return (shared, replace(shared, available_gib=host.memory_free_gib, of=" of MemFree"))
    side = Pool(host.memory_total_gib, host.memory_available_gib, min(HOST_GIB, claim_gib), claimed=False)
    gpu = host.gpu
    return (Pool(gpu.total_gib, gpu.free_gib, claim_gib, " of GPU memory", 0.0), side) if gpu else (side,)


def too_large(recipe: Recipe, node: str, host: HostFacts) -> Iterator[PlanRefused]:
    """Yield what can never fit a node, whatever is stopped there."""
    for pool in pools(recipe, host):
        if pool.claimed:
            yield from refusals(recipe, node, pool.total_gib, pool.beside_gib, pool.of)


def free_gib(recipe: Recipe, host: HostFacts, *, dropped: bool = False) -> float:
    """Return the GiB that the engine finds free: at least its claim exactly when every pool has what it needs."""
    margins = (pool.available_gib - pool.need_gib for pool in pools(recipe, host, dropped=dropped))
    return recipe.memory.claim_gib + min(margins)


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
