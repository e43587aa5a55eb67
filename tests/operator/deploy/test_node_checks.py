"""Room for an engine on a GB10: page cache is dropped, and MemFree must hold the claim as well as MemAvailable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from sparkops.config.release import Rank, Release
from sparkops.errors import NotReady
from sparkops.names import Slot
from sparkops.node.docker_api import Engine
from sparkops.node.member import Member
from sparkops.node.progress import Event
from sparkops.operator.deploy import node_checks
from sparkops.serving.engine_spec import EngineSpec
from tests.examples import CUDA, node, release
from tests.node.recording import RecordingNode

SPARK = release(memory={"claim_gib": 100.0}, image={"torch": CUDA}, serve={"args": {"gpu-memory-utilization": 0.7}})
LARGE = release(memory={"claim_gib": 115.0}, image={"torch": CUDA}, serve={"args": {"gpu-memory-utilization": 0.7}})
OLD = {"id": "org/old", "path": "old"}
RANK = Rank(SPARK, Slot.BLUE, "n1")
GIB = 2**20


def meminfo(available: int, free: int, gpu: str = "[N/A], [N/A]") -> str:
    memory = f"MemTotal: {121 * GIB}\nMemAvailable: {available * GIB}\nMemFree: {free * GIB}\n"
    return f"arch aarch64\nnow 1.0\n{memory}gpu-memory {gpu}\n"


class Bench:
    """A node that answers from a script."""

    def __init__(self, memory: str, **exit_codes: int) -> None:
        self.messages: list[str] = []
        self.node = RecordingNode("n1", {"sh -c": memory, "python3": "dropped"}, exit_codes)
        self.member = Member("n1", node(), self.node, cast("Engine", None))

    def report(self, event: Event) -> None:
        self.messages.append(event.text)


@pytest.mark.parametrize(
    ("available", "free", "back", "problem", "step"),
    [
        (110, 100, 0.0, "", ""),
        (
            110,
            80,
            0.0,
            "n1: 100 GiB claimed, 80.0 GiB of MemFree available: 20.0 GiB short",
            "sudo sh -c 'sync; echo 3 >/proc/sys/vm/drop_caches' on n1 drops the page cache of all files.",
        ),
        (90, 80, 0.0, "n1: 100 GiB claimed, 90.0 GiB available: 10.0 GiB short", "sparkops status"),
        (50, 40, 60.0, "", ""),
        (
            50,
            30,
            60.0,
            "n1: 100 GiB claimed, 90.0 GiB of MemFree available: 10.0 GiB short, including 60 GiB of the old release",
            "sudo sh",
        ),
    ],
    ids=["enough", "page cache", "memory", "after the old release", "page cache after the old release"],
)
def test_both_figures_must_hold_the_claim(available: int, free: int, back: float, problem: str, step: str) -> None:
    bench, message, next_step = Bench(meminfo(available, free)), "", ""
    try:
        node_checks.require_free(bench.member, SPARK.recipe, back)
    except NotReady as error:
        message, next_step = str(error), error.next_step

    assert message == problem
    assert step in next_step


@pytest.mark.parametrize(("free", "refused"), [(40, False), (30, True)])
def test_page_cache_refuses_an_in_place_swap_before_anything_is_stopped(free: int, refused: bool) -> None:
    bench = Bench(meminfo(available=50, free=free))
    new, old = (spec(SPARK, {}), spec(SPARK, {"memory": {"claim_gib": 60.0, "basis": "a test"}}))
    try:
        node_checks.require_without(bench.member, new, old, bench.report)
        problem = ""
    except NotReady as error:
        problem = str(error)

    assert [command.argv[0] for command in bench.node.ran] == ["sh", "python3", "python3", "sh"]
    assert ("MemFree available: 10.0 GiB short" in problem) is refused


def spec(of: Release, changes: Mapping[str, Any]) -> EngineSpec:
    data = of.recipe.model_dump(mode="json", exclude_none=True)
    here = node().model_dump(mode="json", exclude_unset=True)
    given = {"recipe": {**data, **changes}, "inputs": of.inputs, "image": "i", "slot": "blue", "index": 0, "node": here}
    return EngineSpec.model_validate({**given, "address": "10.0.0.1", "jobs": 1})


def test_mem_free_is_not_asked_where_the_gpu_has_its_own_memory() -> None:
    node_checks.require_free(Bench(meminfo(110, 1, gpu="81559, 81079")).member, release(image={"torch": CUDA}).recipe)


def test_a_drop_that_fails_is_told_and_fails_nothing() -> None:
    bench = Bench(meminfo(110, 105), python3=127)

    node_checks.require_without(bench.member, spec(SPARK, {}), None, bench.report)

    assert len(bench.messages) == 1
    assert bench.messages[0].startswith("page cache not dropped: `python3 -c")
