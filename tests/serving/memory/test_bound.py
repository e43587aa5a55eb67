"""What an engine may take of a node, compared with the node's total and the recipe's claim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.engines import ENGINES, EngineName
from sparkops.errors import PlanRefused
from sparkops.operator.deploy import preconditions
from sparkops.operator.deploy.preconditions import Observed
from sparkops.serving.memory import bound
from tests.examples import CHECKPOINT, CUDA, HOST, IMAGE_ID, node, rank, recipe

GPU: dict[str, Any] = {"image": {"torch": CUDA, "vllm": "vllm==0.23.0"}}
USE, LESS = (
    "Use a node with more memory, or a smaller model: sparkops recipes --fits",
    "Set serve.args.gpu-memory-utilization",
)


def wanting(claim: float, size_gb: float | None = None, **args: Any) -> dict[str, Any]:
    named = {key.replace("_", "-"): value for key, value in args.items()}
    return {**GPU, "memory": {"claim_gib": claim}, "serve": {"args": named}, "model": {"size_gb": size_gb}}


@pytest.mark.parametrize(
    ("total_gib", "changes", "problem", "step"),
    [
        (121.7, wanting(116.0, gpu_memory_utilization=0.9), None, ""),
        (121.7, wanting(121.0, gpu_memory_utilization=0.95), None, ""),
        (60.8, wanting(116.0, gpu_memory_utilization=0.9), "116 GiB claimed, 60.8 GiB in total: 55.2 GiB short", USE),
        (
            121.7,
            wanting(115.0, gpu_memory_utilization=0.99),
            "gpu-memory-utilization 0.99 x 121.7 GiB + 5 GiB of the host side = 125.5 GiB, 121.7 GiB in total: "
            "3.8 GiB short",
            f"{LESS} of q to 0.95 or less.",
        ),
        (
            121.7,
            wanting(60.0, gpu_memory_utilization=0.9),
            "memory.claim_gib is 60, less than the engine can take: "
            "gpu-memory-utilization 0.9 x 121.7 GiB + 5 GiB of the host side = 114.5 GiB",
            f"{LESS} of q to 0.45 or less. Or claim 115 GiB: --set memory.claim_gib=115",
        ),
        (
            121.7,
            wanting(116.0),
            "memory.claim_gib is 116, less than the engine can take: "
            "gpu-memory-utilization 0.92 x 121.7 GiB + 5 GiB of the host side = 117.0 GiB",
            f"{LESS} of q to 0.91 or less. Or claim 117 GiB: --set memory.claim_gib=117",
        ),
        (121.7, wanting(60.0, 20, kv_cache_memory_bytes="20G"), None, ""),
        (
            121.7,
            wanting(40.0, 20, kv_cache_memory_bytes="20G", gpu_memory_utilization=0.9),
            "memory.claim_gib is 40, less than the engine can take: "
            "kv-cache-memory-bytes 20.0 GiB + 18.6 GiB of weights + 5 GiB of the "
            "host side = 43.6 GiB",
            "Lower serve.args.kv-cache-memory-bytes of q. Or claim 44 GiB: --set memory.claim_gib=44",
        ),
        (
            121.7,
            wanting(100.0, kv_cache_memory_bytes=130 * 10**9),
            "kv-cache-memory-bytes 121.1 GiB + 5 GiB of the host side = 126.1 GiB, 121.7 GiB in total: 4.4 GiB short",
            "Lower serve.args.kv-cache-memory-bytes of q.",
        ),
        (
            121.7,
            wanting(4.0, gpu_memory_utilization=0.1),
            "memory.claim_gib is 4, less than the engine can take: "
            "gpu-memory-utilization 0.1 x 121.7 GiB + 5 GiB of the host side = 17.2 GiB",
            "Lower serve.args.gpu-memory-utilization of q. Or claim 18 GiB: --set memory.claim_gib=18",
        ),
    ],
    ids=["0.9", "0.95", "64 GB", "0.99", "claim", "default", "fixed", "fixed claim", "fixed total", "tiny claim"],
)
def test_a_node_is_compared_with_its_own_total(
    total_gib: float, changes: dict[str, Any], problem: str | None, step: str
) -> None:
    refusals = [(str(refusal), refusal.next_step) for refusal in bound.refusals(recipe(**changes), "n1", total_gib)]

    assert refusals == ([(f"n1: {problem}", step)] if problem else [])


@pytest.mark.parametrize("given", ["much", 0, -0.5, 1.01])
def test_a_utilization_that_is_no_share_is_refused(given: object) -> None:
    [error] = bound.refusals(recipe(**wanting(10.0, gpu_memory_utilization=given)), "n1", 121.7)

    expected = f"n1: serve.args.gpu-memory-utilization: expected a number above 0 and up to 1, got {given!r}"
    assert (str(error), error.next_step) == (expected, "Change it in q.")


@pytest.mark.parametrize("given", ["20 GB", "-1", "lots", ""])
def test_a_cache_size_that_vllm_cannot_read_is_refused(given: str) -> None:
    [error] = bound.refusals(recipe(**wanting(10.0, kv_cache_memory_bytes=given)), "n1", 121.7)

    assert str(error) == f"n1: serve.args.kv-cache-memory-bytes: expected bytes such as 20G, got {given!r}"


@pytest.mark.parametrize(
    ("given", "gib"), [("2G", 2.0), ("2g", 2e9 / 2**30), ("512M", 0.5), ("1.5k", 1500 / 2**30), (2**31, 2.0)]
)
def test_a_cache_size_is_read_as_vllm_reads_it(given: str | int, gib: float) -> None:
    engine_bound = bound.bound(recipe(**wanting(10.0, kv_cache_memory_bytes=given)), 121.7, host_gib=0.0)

    assert engine_bound is not None
    assert engine_bound.gib == pytest.approx(gib)


def test_a_pair_holds_half_of_the_weights_on_each_node() -> None:
    changes = wanting(60.0, 40, kv_cache_memory_bytes="20G")
    engine_bound = bound.bound(recipe(**{**changes, "serve": {**changes["serve"], "tensor_parallel": 2}}), 121.7)

    assert engine_bound is not None
    assert engine_bound.terms == "kv-cache-memory-bytes 20.0 GiB + 18.6 GiB of weights + 5 GiB of the host side"


def test_a_cpu_has_no_bound_but_its_total() -> None:
    assert bound.bound(recipe(), 24.0) is None
    assert [*bound.refusals(recipe(), "n1", 10.0)] == []
    assert [str(refusal) for refusal in bound.refusals(recipe(), "n1", 9.0)] == [
        "n1: 10 GiB claimed, 9.0 GiB in total: 1.0 GiB short"
    ]


@pytest.mark.parametrize(
    ("engine", "vllm", "share"),
    [
        ("vllm", "vllm==0.19.0", 0.9),
        ("vllm", "vllm==0.19.1", 0.9),
        ("vllm", "vllm==0.19.2rc1.dev154", 0.92),
        ("vllm", "vllm==0.20.0", 0.92),
        ("vllm", "vllm==0.32.0", 0.92),
        ("vllm", "vllm==1.0", 0.92),
        ("vllm", None, 0.92),
        ("atlas", None, 0.9),
    ],
)
def test_the_default_is_that_of_the_pinned_release(engine: EngineName, vllm: str | None, share: float) -> None:
    assert ENGINES[engine].share(vllm) == share


def test_a_deploy_to_a_node_with_64_gb_is_refused_by_its_total() -> None:
    small = replace(HOST, memory_total_gib=60.8, memory_available_gib=58.0)
    observed = Observed(node(gpu="runtime"), small, (), IMAGE_ID, CHECKPOINT)

    [refused] = preconditions.obstacles(rank("n1", **wanting(116.0, gpu_memory_utilization=0.9)), observed)

    assert isinstance(refused, PlanRefused)
    assert str(refused) == "n1: 116 GiB claimed, 60.8 GiB in total: 55.2 GiB short"
