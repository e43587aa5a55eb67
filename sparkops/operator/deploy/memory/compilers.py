"""Limit the number of compilers that an engine runs at its first forward pass, by the node's memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sparkops.config.release import Rank
from sparkops.node.docker.facts import Container
from sparkops.node.host import HostFacts
from sparkops.serving.memory.bound import HOST_GIB
from sparkops.serving.memory.relief import FLOOR_GIB

NVCC_GIB = 8.0
"""Peak of one nvcc in GiB: flashinfer#3634 reports 20 jobs of 3 to 8 on a Spark with FlashInfer 0.6.12, and
flashinfer#3899 a machine that locks up."""


def fitting(free_gib: float, cores: int | None, job_gib: float = NVCC_GIB) -> int:
    """Return the number of compilers of `job_gib` GiB in `free_gib` GiB: at least 1, at most one per known core."""
    jobs = max(1, int(free_gib // job_gib))
    return min(jobs, cores) if cores else jobs


def memory_gib(rank: Rank, host: HostFacts, jobs: int) -> float | None:
    """Return the memory limit of a rank's container in GiB: its claim, `jobs` compilers, and FLOOR_GIB as margin.

    None with a discrete GPU, whose memory is claimed. Page cache counts too, but the kernel reclaims it first.
    """
    return None if host.gpu_is_discrete else rank.release.recipe.memory.claim_gib + jobs * NVCC_GIB + FLOOR_GIB


def limit(rank: Rank, host: HostFacts, containers: Iterable[Container]) -> int:
    """Return the number of compilers that `rank` may run beside the running `containers` of its node.

    Computed from the node's total memory and claims, not from its available memory, so that the same deploy gives the
    same number. FLOOR_GIB stays available. With a discrete GPU, whose memory is claimed, an engine takes HOST_GIB of
    the node.
    """
    others = [other.claim_gib for other in containers if other.running and other.name != rank.container]
    claims_gib = [rank.release.recipe.memory.claim_gib, *others]
    claimed_gib = sum(min(claim, HOST_GIB) for claim in claims_gib) if host.gpu_is_discrete else sum(claims_gib)
    return fitting(host.memory_total_gib - claimed_gib - FLOOR_GIB, host.cores)
