"""The last memory of a node: below the floor, an engine that loads or is not promoted ends before the node hangs.

It needs neither the leader, nor a lock, nor an answer of Docker before the kill: a thread of its own runs it.

Where only promoted engines run, the page cache of the model of the one that was started last is dropped first. Then it
is named, by a finding of the watch, and it ends if its recipe says so (`memory.at_floor`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from sparkops.config.recipe import Recipe
from sparkops.errors import CommandFailed, ConnectionLost, SparkopsError
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.free_memory import read_available_gib
from sparkops.guard.follow.local_service import PromotedRank
from sparkops.node.agents.commands import CONTAINER
from sparkops.node.docker import commands
from sparkops.node.node import Node
from sparkops.serving import engine_spec
from sparkops.serving.memory import pages
from sparkops.serving.memory.relief import ENOUGH, FLOOR_GIB, LOOKS, floor_gib
from sparkops.swap.model import RankSpec

DROP_LOOKS = 10
"""Looks that wait for the page cache to be dropped: a program starts for it, which a full node may delay."""


@dataclass
class Shortage:
    """Too little memory beside the promoted engine that was started last."""

    container: str
    looks: int = 0
    """Looks in a row since it began, or since the page cache was dropped."""
    dropping: threading.Thread | None = None
    """Drops the page cache; None before."""
    found: str = ""
    """What the watch reports; empty until it is sure."""


@dataclass
class MemoryFloor:
    """Memory relief of one node. `log` takes one line."""

    follower: Follower
    node: Node
    log: Callable[[str], None]
    available_gib: Callable[[], float] = read_available_gib
    total_gib: float = inf
    low: Counter[str] = field(default_factory=Counter)
    """Looks in a row at which a container left too little."""
    _shortage: Shortage | None = None

    def short(self, container: str) -> str:
        """Return what the node lacks in memory, of the promoted engine that was started last; else nothing."""
        shortage = self._shortage
        return shortage.found if shortage and shortage.container == container else ""

    def look(self) -> None:
        """Look once, a second after the last time, and kill at most one engine."""
        free_gib = self.available_gib()
        expendable = self.follower.expendable() if free_gib < FLOOR_GIB else []
        due = [(service, rank) for service, rank in expendable if free_gib < self._floor_gib(rank)]
        self.low = Counter({rank.container: self.low[rank.container] + 1 for _, rank in due})
        for service, rank in due:
            if self.low[rank.container] >= LOOKS:
                doing = self.follower.progress(service).get(rank.container, "not promoted")
                self._kill(service, rank, free_gib, doing)
                return
        if not due:
            self._look_beside_promoted(free_gib)

    def _look_beside_promoted(self, free_gib: float) -> None:
        last, shortage = self.follower.last_started, self._shortage
        # No floor is higher, so a node with enough memory reads no recipe every second.
        recipe = _recipe(last.rank) if last and free_gib < FLOOR_GIB * ENOUGH else None
        if last is None or recipe is None:
            self._shortage = None
            return
        floor = self._floor_gib(last.rank)
        if free_gib >= floor * (ENOUGH if shortage and shortage.found else 1):
            self._shortage = None
            return
        name = last.rank.container
        if shortage is None or shortage.container != name:
            self._shortage = shortage = Shortage(name)
        shortage.looks += 1
        if shortage.looks < LOOKS:
            return
        if shortage.dropping is None:
            dropping = threading.Thread(target=self._drop, args=(last, recipe), daemon=True)
            dropping.start()  # first: one that could not be started has dropped nothing
            shortage.dropping, shortage.looks = dropping, 0
        elif not shortage.dropping.is_alive() or shortage.looks >= DROP_LOOKS:
            shortage.found = f"{free_gib:.1f} GiB of memory left, floor {floor:.1f} GiB; this engine was started last"
            if recipe.memory.at_floor == "kill":
                self._kill(last.service, last.rank, free_gib, "promoted, and started last")

    def _drop(self, last: PromotedRank, recipe: Recipe) -> None:
        try:
            guard = self.follower.engines.container(CONTAINER)
            if guard is None:  # a guard outside of a container has no image with Python
                return
            shown = self.node.run(pages.drop_through(last.rank.container, guard.image, recipe)).stdout.strip()
        except (SparkopsError, OSError) as error:
            shown = f"page cache not dropped: {error}"
        self.log(f"{last.service}: {shown}")

    def _kill(self, service: str, rank: RankSpec, free_gib: float, doing: str) -> None:
        floor = self._floor_gib(rank)
        why = f"{free_gib:.1f} GiB of memory left, floor {floor:.3g} GiB: {rank.container} killed ({doing})"
        self.log(f"{service}: {why}")
        self.follower.killed(service, rank.container, why)
        self.low.clear()
        self._shortage = None
        try:
            self.node.run(commands.kill(rank.container))
        except (CommandFailed, ConnectionLost) as error:  # it has ended by itself, or the next looks try again
            self.log(f"{service}: {error}")

    def _floor_gib(self, rank: RankSpec) -> float:
        recipe = _recipe(rank)  # of another version: it may keep back less, and the node must not hang
        return floor_gib(recipe.swap.reserve_gib if recipe else FLOOR_GIB, self.total_gib)


def _recipe(rank: RankSpec) -> Recipe | None:
    """Return the recipe of a rank; None of one by another version, which cannot be read."""
    try:
        return engine_spec.of(rank).parsed
    except ValueError:
        return None
