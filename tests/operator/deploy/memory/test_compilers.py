"""How many compilers a rank may run at once, from the memory of its node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.node.docker.facts import Container
from sparkops.node.host import GpuMemory
from sparkops.operator.deploy.memory import compilers
from tests.examples import HOST, container, rank

SPARK = replace(HOST, memory_total_gib=121.7, cores=20)


def other(claim_gib: float, state: str = "running") -> Container:
    return replace(container(rank("n1")), name="other", claim_gib=claim_gib, state=state)


@pytest.mark.parametrize(
    ("free_gib", "cores", "jobs"),
    [
        (117.7, None, 14),
        (117.7, 20, 14),
        (117.7, 10, 10),
        (16.0, 20, 2),
        (15.9, 20, 1),
        (7.9, 20, 1),
        (-40.0, 20, 1),
        (0.0, None, 1),
    ],
)
def test_each_compiler_has_its_peak_and_one_always_runs(free_gib: float, cores: int | None, jobs: int) -> None:
    assert compilers.fitting(free_gib, cores) == jobs


def test_a_memory_limit_has_room_for_the_claim_the_compilers_and_a_margin() -> None:
    assert compilers.memory_gib(rank(memory={"claim_gib": 80.0}), SPARK, 4) == 80 + 4 * 8 + 4


def test_beside_a_discrete_gpu_a_claim_limits_no_memory_of_the_node() -> None:
    host = replace(SPARK, gpus=(GpuMemory(80.0, 80.0),))

    assert compilers.memory_gib(rank(), host, 4) is None


def test_smaller_jobs_fit_more_often() -> None:
    assert compilers.fitting(2.0, None, job_gib=0.5) == 4


@pytest.mark.parametrize(
    ("total_gib", "claim_gib", "containers", "jobs"),
    [
        (121.7, 110.0, (), 1),
        (121.7, 80.0, (), 4),
        (61.0, 40.0, (), 2),
        (121.7, 40.0, (other(40.0),), 4),
        (121.7, 40.0, (other(40.0, "exited"),), 9),
    ],
    ids=["a whole Spark", "a Spark", "a Spark with 64 GB", "beside another", "another that is stopped"],
)
def test_memory_that_is_claimed_is_not_for_compilers(
    total_gib: float, claim_gib: float, containers: tuple[Container, ...], jobs: int
) -> None:
    host = replace(SPARK, memory_total_gib=total_gib)

    assert compilers.limit(rank(memory={"claim_gib": claim_gib}), host, containers) == jobs


def test_memory_in_use_and_an_earlier_start_change_nothing() -> None:
    of = rank(memory={"claim_gib": 80.0})
    earlier = replace(container(of), claim_gib=80.0)

    assert compilers.limit(of, replace(SPARK, memory_available_gib=20.0), [earlier]) == 4


def test_the_memory_of_a_discrete_gpu_is_not_the_compilers() -> None:
    host = replace(SPARK, gpus=(GpuMemory(80.0, 79.0),))

    assert compilers.limit(rank(memory={"claim_gib": 72.0}), host, (other(3.0),)) == 13
