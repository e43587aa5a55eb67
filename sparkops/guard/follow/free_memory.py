"""Measure what an engine finds free on this node before it starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sparkops.config.recipe import Recipe
from sparkops.errors import CommandFailed, ConnectionLost, Interrupted, NotReady
from sparkops.node import host
from sparkops.node.docker.facts import Container
from sparkops.node.local import LocalNode
from sparkops.serving.memory import pages
from sparkops.serving.memory.pools import counts_page_cache, free_gib, pools

APART_S = 1.0
LACK = "waiting for memory: "


def read_available_gib() -> float:
    """Return the memory that a new program could take on this machine now, in GiB. Raises OSError, ValueError."""
    return host.available_gib(Path("/proc/meminfo").read_text())


def read_total_gib() -> float:
    """Return the memory of this machine in GiB. Raises OSError, ValueError."""
    return host.total_gib(Path("/proc/meminfo").read_text())


@dataclass(frozen=True)
class Measuring:
    """A measurement for the container of an engine. `guard` is this guard's own container, None outside of one.

    `first`: the engine has never run here, so page cache of other files counts as used where CUDA counts it.
    """

    node: LocalNode
    container: str
    recipe: Recipe
    guard: Container | None
    first: bool
    show: Callable[[str], None]
    cancel: threading.Event

    def drop(self) -> None:
        """Drop the clean pages of the model where they count as used. A start never fails for this alone."""
        if self.guard is None or not counts_page_cache(self.recipe, host.parse(self.node.run(host.FREE).stdout)):
            return
        try:
            command = pages.drop_through(self.container, self.guard.image, self.recipe)
            self.show(self.node.run(command).stdout.strip())
        except (CommandFailed, ConnectionLost, NotReady) as error:
            self.show(f"page cache not dropped: {error.problem}")

    def free_gib(self) -> float:
        """Return the lower of two samples in GiB. Raises Interrupted, CommandFailed, ConnectionLost, ValueError."""
        return min(self._samples())

    def _samples(self) -> Iterator[float]:
        yield self._sample()
        if self.cancel.wait(APART_S):
            raise Interrupted("interrupted")
        yield self._sample()

    def _sample(self) -> float:
        facts = host.parse(self.node.run(host.FREE).stdout)
        lack = "; ".join(pool.lack for pool in pools(self.recipe, facts, dropped=self.first) if pool.lack)
        if lack:
            self.show(f"{LACK}{lack}")
        return free_gib(self.recipe, facts, dropped=self.first)
