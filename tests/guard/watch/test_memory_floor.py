"""The memory floor beside engines that serve: page cache first, then words, and a kill where the recipe says so."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from sparkops.command import Command, Completed
from sparkops.guard.follow.local_service import PromotedRank
from sparkops.guard.watch.memory_floor import DROP_LOOKS, MemoryFloor
from sparkops.serving.memory.relief import ENOUGH, FLOOR_GIB, LOOKS, floor_gib
from tests.examples import container, rank
from tests.guard.promoted import promoted_rank

pytestmark = pytest.mark.unit
LOW, SPARK_GIB, SMALL_SPARK_GIB = FLOOR_GIB - 0.1, 121.7, 60.8
PATIENCE_S = 60.0


@dataclass
class Here:
    """A node whose only engine serves. It is the follower, the node and the engines of the memory floor."""

    at_floor: str = "warn"
    docker: threading.Event = field(default_factory=threading.Event)
    """Docker answers while it is set."""
    commands: list[tuple[str, ...]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    killed_for: list[str] = field(default_factory=list)
    free_gib: float = LOW
    total_gib: float = SPARK_GIB

    def __post_init__(self) -> None:
        self.docker.set()
        changes: dict[str, Any] = {"memory": {"claim_gib": 60.0, "basis": "a test", "at_floor": self.at_floor}}
        serving = promoted_rank(alone=True, **changes)
        self.rank, self.last_started = serving.rank, cast("PromotedRank | None", serving)
        this: Any = self
        self.engines = self
        self.floor = MemoryFloor(this, this, self.lines.append, lambda: self.free_gib, self.total_gib)

    def expendable(self) -> tuple[()]:
        return ()

    def progress(self, service: str) -> Mapping[str, str]:
        return {service: ""}

    def container(self, _: str) -> Any:
        return container(rank())

    def killed(self, _service: str, _container: str, why: str) -> None:
        self.killed_for.append(why)

    def run(self, command: Command) -> Completed:
        self.commands.append(command.argv)
        assert self.docker.wait(PATIENCE_S)
        return Completed("n1", command, 0, "page cache dropped: 3 files, 60.0 GiB in /models", "")

    def looks(self, number: int) -> None:
        for _ in range(number):
            self.floor.look()
            if (shortage := self.floor._shortage) and shortage.dropping and self.docker.is_set():
                shortage.dropping.join(PATIENCE_S)

    @property
    def found(self) -> str:
        return self.floor.short(self.rank.container)

    @property
    def verbs(self) -> list[str]:
        return [argv[1] for argv in self.commands]


def test_an_engine_that_serves_is_named_once_its_page_cache_was_dropped_and_nothing_is_killed() -> None:
    here = Here()
    here.looks(LOOKS - 1)
    assert (here.commands, here.found) == ([], "")
    here.looks(1)
    assert (here.verbs, here.found, here.lines[0][:24]) == (["run"], "", "chat: page cache dropped")
    here.looks(LOOKS)
    assert here.found == "3.9 GiB of memory left, floor 4.0 GiB; this engine was started last"
    here.looks(100)
    assert (here.verbs, here.killed_for) == (["run"], [])


def test_enough_memory_after_the_page_cache_was_dropped_is_no_finding() -> None:
    here = Here()
    here.looks(LOOKS)
    here.free_gib = FLOOR_GIB
    here.looks(1)
    here.free_gib = LOW
    here.looks(LOOKS)
    assert (here.found, here.verbs) == ("", ["run", "run"])


def test_a_finding_ends_with_a_margin() -> None:
    here = Here()
    here.looks(2 * LOOKS)
    here.free_gib = FLOOR_GIB * ENOUGH - 0.1
    here.looks(1)
    assert here.found
    here.free_gib = FLOOR_GIB * ENOUGH
    here.looks(1)
    assert not here.found


def test_an_engine_whose_recipe_says_so_is_killed_after_its_page_cache_was_dropped() -> None:
    here = Here("kill")
    here.looks(LOOKS)
    assert here.killed_for == []
    here.looks(LOOKS)
    [why] = here.killed_for
    assert why == f"3.9 GiB of memory left, floor 4 GiB: {here.rank.container} killed (promoted, and started last)"
    assert here.verbs == ["run", "kill"]


def test_a_docker_that_does_not_answer_delays_a_kill_only_for_so_long() -> None:
    here = Here("kill")
    here.docker.clear()
    here.looks(LOOKS + DROP_LOOKS - 1)
    assert here.killed_for == []
    threading.Timer(1.0, here.docker.set).start()  # the kill asks Docker too, and is noted before
    here.looks(1)
    assert len(here.killed_for) == 1


def test_without_an_engine_that_serves_nothing_is_named_or_dropped() -> None:
    here = Here()
    here.last_started = None
    here.looks(2 * LOOKS)
    assert here.commands == []


def test_a_smaller_spark_has_a_smaller_floor() -> None:
    assert floor_gib(8.0, SPARK_GIB) == FLOOR_GIB
    assert floor_gib(8.0, SMALL_SPARK_GIB) == pytest.approx(2.0, abs=0.01)
    assert floor_gib(1.0, SMALL_SPARK_GIB) == 1.0
    here = Here("kill", free_gib=2.1, total_gib=SMALL_SPARK_GIB)
    here.looks(LOOKS + DROP_LOOKS)
    here.free_gib = 1.9
    assert (here.commands, here.killed_for) == ([], [])
    here.looks(2 * LOOKS)
    assert len(here.killed_for) == 1
