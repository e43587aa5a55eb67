"""Where a GPU has memory of its own, a claim is for that, and the node's memory holds the host side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.release import Release
from sparkops.errors import PlanRefused
from sparkops.node.docker.facts import Container
from sparkops.node.host import GpuMemory, HostFacts
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preconditions import Current, Observed
from sparkops.serving.memory.pools import free_gib, pools
from sparkops.swap.model import Mode
from tests.examples import CHECKPOINT, CUDA, HOST, IMAGE_ID, node, recipe, release
from tests.operator.deploy.swaps import BLUE_RUNS, SERVING, plan, refusal

ARGS = {"args": {"gpu-memory-utilization": 0.36}}
NEW = release(memory={"claim_gib": 32.0}, image={"torch": CUDA}, serve=ARGS)


def on(free: float, *containers: Container, gpus: tuple[float | None, ...] = (), **host: Any) -> Observed:
    """A node with so much of its own memory, and GPUs of 80 GiB with so much free."""
    memories = tuple(None if gib is None else GpuMemory(80.0, gib) for gib in gpus)
    facts = replace(HOST, memory_available_gib=free, gpus=memories, **host)
    return Observed(node(gpu="runtime"), facts, containers, IMAGE_ID, CHECKPOINT)


def first(observed: Observed, of: Release = NEW) -> str:
    """The arithmetic of a first deploy, or the reason against it."""
    try:
        return plan(Current(), of=of, n1=observed).arithmetic()[0]
    except PlanRefused as error:
        return str(error).splitlines()[1].removeprefix("  first on ")


@pytest.mark.parametrize(
    ("observed", "outcome"),
    [
        (on(20.0, gpus=(79.0,)), "n1: 79.0 GiB of GPU memory available - 32 claimed: 47.0 GiB left"),
        (on(100.0, gpus=(13.9,)), "n1: 13.9 GiB of GPU memory available - 32 claimed: 18.1 GiB short"),
        (on(100.0, gpus=(79.0, 20.0)), "n1: 20.0 GiB of GPU memory available - 32 claimed: 12.0 GiB short"),
        (on(3.0, gpus=(79.0,)), "n1: 3.0 GiB available - 5 of the host side: 2.0 GiB short"),
    ],
    ids=["fits", "the GPU is in use", "which GPU is not known", "the host side"],
)
def test_a_claim_is_for_the_memory_of_a_discrete_gpu(observed: Observed, outcome: str) -> None:
    assert first(observed) == outcome


def test_more_than_the_gpu_has_is_refused_by_its_total() -> None:
    large = release(memory={"claim_gib": 116.0}, image={"torch": CUDA}, serve={"args": {"gpu-memory-utilization": 0.9}})

    assert first(on(200.0, gpus=(79.0,)), large) == (
        "n1: 116 GiB claimed, 80.0 GiB of GPU memory in total: 36.0 GiB short"
    )


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (on(100.0, gpus=(13.9,)), "13.9 GiB of GPU memory available - 32 claimed: 18.1 GiB short"),
        (on(3.0, gpus=(79.0,)), "3.0 GiB available - 5 of the host side: 2.0 GiB short"),
    ],
    ids=["the GPU", "the host side"],
)
def test_a_refusal_for_the_memory_beside_a_discrete_gpu_names_what_frees_it(observed: Observed, reason: str) -> None:
    error = refusal(Current(), of=NEW, n1=observed)

    assert str(error).splitlines()[1:] == [f"  first on n1: {reason}"]
    frees = "`sparkops status` shows what is used; or use a node with more: --node"
    assert error.next_step == f"Free memory on n1: {frees}; or lower what it takes: sparkops fit q"


def test_a_claim_below_what_an_engine_takes_outside_its_budget_is_refused_on_a_discrete_gpu() -> None:
    """Its share alone is 28.8 GiB of 80."""
    below = release(memory={"claim_gib": 31.0}, image={"torch": CUDA}, serve=ARGS)

    error = refusal(Current(), of=below, n1=on(100.0, gpus=(79.0,)))

    sum_gib = "gpu-memory-utilization 0.36 x 80.0 GiB + 2.4 GiB outside its budget = 31.2 GiB"
    assert str(error).splitlines()[1:] == [
        f"  first on n1: memory.claim_gib is 31, less than the engine can take: {sum_gib}"
    ]
    assert error.next_step == (
        "Set serve.args.gpu-memory-utilization of q to 0.35 or less. Or claim 32 GiB: --set memory.claim_gib=32"
    )
    assert "32 claimed: 47.0 GiB left" in first(on(100.0, gpus=(79.0,))), "what it asks for is accepted"


def test_shared_memory_is_the_node_s_and_so_is_that_of_an_engine_on_the_cpu() -> None:
    spark = release(memory={"claim_gib": 55.0}, image={"torch": CUDA}, serve=ARGS)

    assert first(on(90.0, gpus=(None,)), spark) == "n1: 90.0 GiB available - 55 claimed: 35.0 GiB left"
    assert first(on(90.0, gpus=(1.0,)), release()) == "n1: 90.0 GiB available - 10 claimed: 80.0 GiB left"


def test_a_discrete_gpu_that_cannot_be_asked_leaves_the_host_side_to_compare() -> None:
    """The guard's container has no nvidia-smi: what it starts again must not wait for the GPU's gigabytes in RAM."""
    [side] = pools(NEW.recipe, replace(HOST, gpu_model="NVIDIA H100 80GB HBM3"))

    assert (side.need_gib, side.claimed, side.lack) == (5.0, False, "")
    assert pools(recipe(), HOST)[0].need_gib == 10.0


@pytest.mark.parametrize(
    ("gpu_gib", "free", "mode", "note"),
    [
        (40.0, 90.0, Mode.BESIDE, "n1: 40.0 GiB of GPU memory available - 32 claimed: 8.0 GiB left"),
        (20.0, 90.0, Mode.IN_PLACE, "n1: 20.0 GiB of GPU memory available + 40 freed - 32 claimed: 28.0 GiB left"),
        (40.0, 19.0, Mode.IN_PLACE, "n1: 40.0 GiB of GPU memory available + 40 freed - 32 claimed: 48.0 GiB left"),
    ],
    ids=["both fit", "the GPU does not hold both", "the node's memory would run out"],
)
def test_beside_is_chosen_by_the_memory_of_the_gpu(gpu_gib: float, free: float, mode: Mode, note: str) -> None:
    swap_plan = plan(SERVING, DeployOptions(allow_downtime=True), NEW, n1=on(free, BLUE_RUNS, gpus=(gpu_gib,)))

    assert (swap_plan.mode, swap_plan.arithmetic()) == (mode, (note,))


@pytest.mark.parametrize(
    ("host", "dropped"),
    [
        (replace(HOST, memory_available_gib=32.0), False),
        (replace(HOST, memory_available_gib=31.9), False),
        (replace(HOST, memory_available_gib=99.0, memory_free_gib=31.0, gpu_model="NVIDIA GB10"), True),
        (replace(HOST, memory_available_gib=99.0, memory_free_gib=31.0, gpu_model="NVIDIA GB10"), False),
        (replace(HOST, memory_available_gib=99.0, gpus=(GpuMemory(80.0, 33.0),)), False),
        (replace(HOST, memory_available_gib=2.0, gpus=(GpuMemory(80.0, 33.0),)), False),
    ],
)
def test_free_memory_reaches_the_claim_exactly_where_every_pool_fits(host: HostFacts, dropped: bool) -> None:
    lacks = [pool.lack for pool in pools(NEW.recipe, host, dropped=dropped) if pool.lack]
    assert (free_gib(NEW.recipe, host, dropped=dropped) >= NEW.recipe.memory.claim_gib) == (not lacks)
