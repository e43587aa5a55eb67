"""Watch one engine from its start until it answers, fails, or is not to be watched any more."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from sparkops.config.node import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.config.startup import Startup
from sparkops.engines import ENGINES
from sparkops.errors import ConnectionLost, NotReady, StartFailed
from sparkops.foreign import escaped
from sparkops.guard.follow.engine_port import EnginePort
from sparkops.guard.follow.free_memory import read_total_gib
from sparkops.guard.follow.start_watch import StartMonitor
from sparkops.node.docker.facts import Container
from sparkops.node.docker_api import Engine
from sparkops.node.http import session
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.serving.memory.relief import floor_gib
from sparkops.serving.startup import causes
from sparkops.serving.startup.estimate import Forecast
from sparkops.serving.startup.verdict import MemorySample, Sample, Watch, advance, explanation, memory_csv
from sparkops.swap.model import Answer

POLL_S = 1.0
OTHERS_S = 5.0
"""Longest that a verdict waits that only shows the end of another rank, whose guard sees it within POLL_S."""
SHOWN = 160
"""Characters of each line that is shown of a log that nothing explains."""


@dataclass(frozen=True)
class Loaded:
    """How a start ended: with a `problem`, or with an engine that answers."""

    watch: Watch
    problem: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Evidence by file name."""


def limits(recipe: Recipe, rank: int) -> Startup:
    """Return when a start counts as hung. A rank above 0 is silent while it works; rank 0's node judges both."""
    if rank == 0:
        return recipe.probe.startup
    return Startup.model_construct(stall_s=math.inf, compile_stall_s=math.inf, max_s=math.inf)


def resumed(watch: Watch, unseen_s: float) -> Watch:
    """Return the watch after a time without samples, in which no clock of it advances."""
    later = watch.limits.model_copy(update={"max_s": watch.limits.max_s + unseen_s})
    return replace(watch, limits=later, moved_s=watch.moved_s + unseen_s)


@dataclass
class Loading:
    """The watch over one start. `show` gets one line for the progress. `cancel` ends it without a verdict."""

    node: LocalNode
    container: Container
    recipe: Recipe
    forecast: Forecast | None
    show: Callable[[str], None]
    cancel: threading.Event
    note: Callable[[Answer], None]
    """Called with each answer of /health."""
    port: EnginePort
    watch: Watch = field(init=False)
    born_s: float = field(init=False)
    """The container's start in monotonic seconds. A clock that is set later does not move it."""
    memory: list[MemorySample] = field(default_factory=list)
    sampled_s: float = 0.0
    """Age of the container at the last sample."""
    last: str = ""
    """Timestamp of the last line of the log that was read."""

    def __post_init__(self) -> None:
        age_s = max(
            0.0, time.time() - self.container.started_at
        )  # Docker's time lies ahead of a clock that was set back
        self.born_s = time.monotonic() - age_s
        log, floor = ENGINES[self.recipe.engine].log, floor_gib(self.recipe.swap.reserve_gib, read_total_gib())
        known = tuple(causes.of(self.recipe.engine))
        self.watch = Watch(limits(self.recipe, self.container.rank), log, known, floor)

    def follow(self) -> Loaded | None:
        """Watch until the verdict; None if cancelled. While Docker cannot be read, no clock advances."""
        while not self.cancel.is_set():
            try:
                if self._look():
                    return self._verdict()
            except (ConnectionLost, NotReady) as error:
                self.show(f"waiting for Docker: {error.problem}")
                self.cancel.wait(POLL_S)
            except StartFailed as error:
                return Loaded(self.watch, error.problem)
        return None

    def _look(self) -> bool:
        """Sample over one connection until the verdict; False if cancelled."""
        with closing(Engine(self.node)) as engine, session(self.node, self.container.port) as asking:
            member = Member(self.node.name, NodeConfig(transport="local"), self.node, engine)
            ask = self.port.health
            monitor = StartMonitor(member, self.container, asking, self.born_s, self.last, memory=self.memory, ask=ask)
            self.watch = resumed(self.watch, max(0.0, time.monotonic() - self.born_s - self.sampled_s))
            while not self.cancel.is_set():
                try:
                    sample = monitor.sample()
                finally:
                    self.note(monitor.health)
                if self.port.taken:
                    self.cancel.wait(POLL_S)  # its guard watches it again at once, while it runs
                    raise StartFailed(self.node.name, f"{self.container.name}: {self.port.taken}")
                over = self._advance(sample)
                self.last = monitor.last
                if over:
                    return True
                self.cancel.wait(POLL_S)
        return False

    def _advance(self, sample: Sample) -> bool:
        """Take one sample in. What still runs after a failure is sampled once more: its last lines tell the cause."""
        before, self.watch, self.sampled_s = self.watch, advance(self.watch, sample), sample.at_s
        remaining = (
            f", {self.forecast.remaining(self.watch, sample.at_s)}" if self.forecast and not self.watch.over else ""
        )
        self.show(f"{self.watch.text}{remaining or f', {sample.at_s:.0f} s'}")
        ended = bool(self.watch.failure) and not sample.running
        return self.watch.healthy or bool(before.failure) or ended

    def _verdict(self) -> Loaded:
        """Return how the start ended. What only points to another rank waits: the other's reason is to come first."""
        watch = self.watch
        if watch.healthy:
            return Loaded(watch)
        found = explanation(watch)
        if found.of_others and self.container.ranks > 1:
            self.cancel.wait(OTHERS_S)
        lines = [f"{self.container.name} did not start: {watch.failure}"]
        if found.root and found.root not in watch.failure:
            lines.append(f"  log: {found.root}")
        if found.advice:
            lines += [f"  likely cause: {found.advice.cause}", f"next: {found.advice.step}"]
        elif watch.tail:
            shown = (f"    {line[:SHOWN]}" for line in found.around(watch.tail))
            lines += ["  the log around it; `sparkops history` names the file with all of it:", *map(escaped, shown)]
        return Loaded(watch, "\n".join(lines), {"memory.csv": memory_csv(self.memory)})
