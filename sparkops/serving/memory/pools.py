"""Compare the memory that an engine needs with the available memory of a node, by pool. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.errors import PlanRefused
from sparkops.node.docker.facts import Container
from sparkops.node.host import HostFacts
from sparkops.serving.memory.bound import HOST_GIB, OUTSIDE_GIB, refusals


@dataclass(frozen=True)
class Pool:
    """One kind of memory of a node in GiB. `of` is its name in messages; empty for the node's own memory."""

    total_gib: float
    available_gib: float
    need_gib: float
    of: str = ""
    beside_gib: float = HOST_GIB
    """GiB that an engine takes of it besides its share: the host side, or OUTSIDE_GIB of a GPU with its own memory."""
    claimed: bool = True
    """Whether the recipe's claim is for this pool, or only the host side."""

    @property
    def lack(self) -> str:
        """Missing GiB, with the arithmetic; empty if enough."""
        short_gib = self.need_gib - self.available_gib
        need = f"{self.need_gib:g} GiB {'claimed' if self.claimed else 'of the host side needed'}"
        lack = f"{need}, {self.available_gib:.1f} GiB{self.of} available: {short_gib:.1f} GiB short"
        return lack if short_gib > 0 else ""


def counts_page_cache(recipe: Recipe, host: HostFacts) -> bool:
    """Return whether page cache counts as used at the start of the engine: on a GB10 CUDA reports MemFree as free."""
    return recipe.backend != "cpu" and ENGINES[recipe.engine].weights and host.gpu_shares_memory


def pools(recipe: Recipe, host: HostFacts, *, dropped: bool = False) -> tuple[Pool, ...]:
    """Return the pool of the claim, then the other pool, if any.

    With a discrete GPU the other pool is the host side; a GPU without a reading is checked by the engine itself. After
    the model's pages are `dropped`, it is MemFree if page cache counts as used.
    """
    claim_gib = recipe.memory.claim_gib
    if recipe.backend == "cpu" or not host.gpu_is_discrete:
        shared = Pool(host.memory_total_gib, host.memory_available_gib, claim_gib)
        if not dropped or host.memory_free_gib is None or not counts_page_cache(recipe, host):
            return (shared,)
        return (shared, replace(shared, available_gib=host.memory_free_gib, of=" of MemFree"))
    side = Pool(host.memory_total_gib, host.memory_available_gib, min(HOST_GIB, claim_gib), claimed=False)
    gpu = host.gpu
    return (Pool(gpu.total_gib, gpu.free_gib, claim_gib, " of GPU memory", OUTSIDE_GIB), side) if gpu else (side,)


def too_large(recipe: Recipe, node: str, host: HostFacts) -> Iterator[PlanRefused]:
    """Yield the reasons why the recipe cannot fit the node, even if nothing else runs there."""
    for pool in pools(recipe, host):
        if pool.claimed:
            yield from refusals(recipe, node, pool.total_gib, pool.beside_gib, pool.of)


def free_gib(recipe: Recipe, host: HostFacts, *, dropped: bool = False) -> float:
    """Return the GiB that are free for the engine: its claim or more exactly if no pool lacks memory."""
    margins = (pool.available_gib - pool.need_gib for pool in pools(recipe, host, dropped=dropped))
    return recipe.memory.claim_gib + min(margins)


@dataclass(frozen=True)
class Room:
    """Memory of one node in GiB; of the GPU, if it has its own (`shared` False).

    `host_gib`: GiB of an engine beside its budget; `old_gib`: claims of the running containers `old`.
    """

    node: str
    total_gib: float
    available_gib: float
    host_gib: float
    shared: bool
    old_gib: float = 0.0
    old: tuple[str, ...] = ()


def room(node: str, recipe: Recipe, host: HostFacts, containers: Sequence[Container]) -> Room:
    """Return the memory for the recipe's engine. Raises ValueError for a GPU without a reading."""
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
