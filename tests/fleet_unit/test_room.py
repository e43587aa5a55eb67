"""Room for an engine on a GB10: page cache is dropped, and MemFree must hold the claim as well as MemAvailable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from sparkops.commands import guard, pages
from sparkops.errors import NotReady
from sparkops.fleet import phases, room
from sparkops.fleet.connected import Member
from sparkops.fleet.hands import Hand
from sparkops.fleet.keep import Keep
from sparkops.fleet.phases import Round
from sparkops.fleet.progress import Event
from sparkops.nodes.engine import Engine
from sparkops.nodes.recording import RecordingNode
from sparkops.plan.deploy import start_steps
from sparkops.plan.journal import Mode
from sparkops.plan.swap import SwapPlan
from sparkops.release import Rank, Slot
from tests.examples import CUDA, container, node, rank, release
from tests.fleet_unit.machine import inspect
from tests.plan.places import placed
from tests.plan.test_pools import on

SPARK = release(memory={"claim_gib": 100.0}, image={"torch": CUDA}, serve={"args": {"gpu-memory-utilization": 0.7}})
LARGE = release(memory={"claim_gib": 115.0}, image={"torch": CUDA}, serve={"args": {"gpu-memory-utilization": 0.7}})
OLD = {"id": "org/old", "path": "old"}
RANK = Rank(SPARK, Slot.BLUE, "n1")
GIB = 2**20


class Containers:
    """What Docker answers about containers."""

    def __init__(self, **there: Mapping[str, Any]) -> None:
        self.there = {name.replace("_", "-"): each for name, each in there.items()}

    def container(self, name: str) -> Mapping[str, Any] | None:
        return self.there.get(name)


def meminfo(available: int, free: int, gpu: str = "[N/A], [N/A]") -> str:
    memory = f"MemTotal: {121 * GIB}\nMemAvailable: {available * GIB}\nMemFree: {free * GIB}\n"
    return f"arch aarch64\nnow 1.0\nboot b\n{memory}gpu-memory {gpu}\n"


class Bench:
    """A hand on a node that answers from a script."""

    def __init__(self, memory: str, there: Containers | None = None, **exit_codes: int) -> None:
        self.told: list[str] = []
        self.ran: list[str] = []
        self.node = RecordingNode("n1", {"sh -c": memory, "python3": "dropped"}, exit_codes)
        member = Member("n1", node(), self.node, cast("Engine", there or Containers()))
        self.hand = Hand(member, self._run, self._tell)

    def _run(self, command: Any) -> Any:
        self.ran.append(str(command).split(" ")[1])
        return self.node.run(command)

    def _tell(self, event: Event) -> None:
        self.told.append(event.text)


def test_a_start_drops_first_then_checks_then_begins() -> None:
    bench = Bench(meminfo(available=110, free=105))

    room.take(bench.hand, start_steps(RANK, on(110.0, gpus=(None,))), SPARK.recipe)

    assert bench.ran == ["create", "start"], "dropping is no change, and goes past the lock"
    kinds = [each.argv[0] for each in bench.node.ran]
    assert kinds == ["python3", "sh", "docker", "docker"]
    assert bench.node.ran[0] == pages.drop(SPARK.recipe, node())
    assert "dropped" in bench.told


@pytest.mark.parametrize(
    ("gpus", "of"),
    [((80.0,), release(memory={"claim_gib": 60.0}, image={"torch": CUDA})), ((None,), release()), ((), SPARK)],
    ids=["memory of its own", "the CPU", "no GPU known"],
)
def test_elsewhere_nothing_is_dropped(gpus: tuple[float | None, ...], of: Any) -> None:
    steps = [*start_steps(Rank(of, Slot.BLUE, "n1"), on(110.0, gpus=gpus))]

    assert [step.title for step in steps] == ["create the container", "start it"]


def test_a_dry_run_prints_the_program() -> None:
    first = next(start_steps(RANK, on(110.0, gpus=(None,))))

    assert "posix_fadvise" in str(first)
    assert "/srv/models/q" in str(first)


def test_a_release_that_runs_is_left_alone() -> None:
    assert [*start_steps(RANK, on(5.0, container(RANK), gpus=(None,)))] == []


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
            "n1: 100 GiB claimed, 90.0 GiB of MemFree available: 10.0 GiB short, "
            "with 60 GiB that the old release gives back",
            "sudo sh",
        ),
    ],
    ids=["enough", "page cache", "memory", "after blue", "page cache after blue"],
)
def test_both_figures_must_hold_the_claim(available: int, free: int, back: float, problem: str, step: str) -> None:
    bench, said, next_step = Bench(meminfo(available, free)), "", ""
    try:
        room.require(bench.hand, SPARK.recipe, back)
    except NotReady as error:
        said, next_step = str(error), error.next_step

    assert said == problem
    assert step in next_step


def test_mem_free_is_not_asked_where_the_gpu_has_its_own_memory() -> None:
    room.require(Bench(meminfo(110, 1, gpu="81559, 81079")).hand, release(image={"torch": CUDA}).recipe)


def test_a_drop_that_fails_is_told_and_fails_nothing() -> None:
    bench = Bench(meminfo(110, 105), python3=127)

    room.take(bench.hand, start_steps(RANK, on(110.0, gpus=(None,))), SPARK.recipe)

    assert bench.ran == ["create", "start"]
    assert any(text.startswith("page cache not dropped: `python3 -c") for text in bench.told)


def test_a_release_that_comes_back_is_dropped_for_by_the_guard_s_image_and_does_not_need_mem_free() -> None:
    """What ran before must not stay down because of the page cache of other files."""
    name = rank().container
    labels = RANK.labels
    there = Containers(
        **{guard.CONTAINER: inspect(guard.CONTAINER, {}, "running"), name: inspect(name, labels, "exited")}
    )
    bench = Bench(meminfo(available=110, free=20), there)
    old = placed("q", "blue", container=name, recipe=SPARK.recipe.model_dump(mode="json", exclude_none=True))

    room.start_rank(bench.hand, old)

    dropped = [each for each in bench.node.ran if "--volumes-from" in str(each)]
    assert [each.argv[-1] for each in dropped] == ["/models/q"]
    assert bench.ran == ["start"]


def test_page_cache_refuses_an_in_place_swap_before_anything_is_stopped() -> None:
    bench = Bench(meminfo(available=60, free=10))
    blue = placed("old", "blue", recipe={**SPARK.recipe.model_dump(mode="json", exclude_none=True), "model": OLD})
    made = SwapPlan(SPARK, Mode.IN_PLACE, (replace(RANK, slot=Slot.GREEN),), blue, ())
    this = Round(made, blue, {"n1": on(60.0, gpus=(None,))}, lambda _: bench.hand, bench.hand, Keep(Path))

    with pytest.raises(NotReady, match=r"n1: 115 GiB claimed, 110\.0 GiB of MemFree available: 5\.0 GiB short"):
        phases.arm(replace(this, plan=replace(made, release=LARGE)))
    assert bench.ran == []
    assert [each.argv[-1] for each in bench.node.ran if each.argv[0] == "python3"] == [
        "/srv/models/old",
        "/srv/models/q",
    ]

    phases.arm(this)
    assert bench.ran == []
