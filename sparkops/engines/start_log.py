"""The log of a start: its stages and its figures of memory. Pure.

The phrases are those of an engine, which declares them as a StartLog.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from sparkops.engines.causes import Cause

NEVER = re.compile(r"(?!)")
"""The pattern of what an engine does not log."""


class Stage(StrEnum):
    """Stages in order. Engines skip some: --enforce-eager captures no graphs."""

    STARTING = "starting"
    JOINING = "joining ranks"
    WEIGHTS = "loading weights"
    COMPILING = "compiling"
    KV_CACHE = "sizing the KV cache"
    TUNING = "tuning kernels"
    GRAPHS = "capturing graphs"
    WARMING = "warming up"
    OPENING = "opening the API"
    SERVING = "serving"

    @property
    def order(self) -> int:
        """Position; a start never returns to an earlier stage."""
        return list(Stage).index(self)

    def follows(self, stage: Stage) -> bool:
        """Return whether a start goes from `stage` to this one.

        A stage of graphs follows the one of the KV cache: vLLM 0.32's V2 model runner captures graphs twice, with the
        same lines: the first time, before it sizes the KV cache, only to measure their memory.
        """
        first = Stage.KV_CACHE.order if self in (Stage.GRAPHS, Stage.WARMING) else 0
        return first <= stage.order < self.order


@dataclass(frozen=True)
class Reading:
    """Contents of one line. `percent`: loaded part of the weights; None on other lines."""

    stage: Stage | None = None
    percent: int | None = None
    fatal: bool = False


@dataclass(frozen=True)
class ReportedMemory:
    """GiB of one rank that an engine logged at a start; None: it did not.

    Of several ranks in one log, the largest weights and the smallest cache, which it uses for all.
    """

    weights_gib: float | None = None
    cache_gib: float | None = None
    graphs_gib: float | None = None


ARGUMENTS_REFUSED = r"^\w[\w. ]{0,256}: error: (?:argument |unrecognized arguments: |the following arguments )"
"""The last line of argparse."""


def fingerprint(line: str) -> str:
    """Return the start of a line without its numbers, so that a repeated heartbeat is not progress."""
    return re.sub(r"\d+", "#", line[:1000])[:200]


@dataclass(frozen=True)
class StartLog:
    """The phrases of one engine's log."""

    markers: tuple[tuple[Stage, re.Pattern[str]], ...]
    """The first line of each stage; the first pattern that matches a line decides."""
    fatal: re.Pattern[str]
    """Lines after which a start cannot succeed."""
    causes: tuple[Cause, ...] = ()
    """Known causes of a failure in the engine's own code. serving/startup/causes has those of the layers below it."""
    percent: re.Pattern[str] = NEVER
    """The loaded part of the weights, as the group `percent`."""
    weights_gib: re.Pattern[str] = NEVER
    """GiB of the weights, as the first group."""
    cache_gib: re.Pattern[str] = NEVER
    """GiB left for the KV cache, as the first group."""
    graphs_gib: re.Pattern[str] = NEVER
    """GiB of CUDA graphs, as the first group."""

    def read(self, line: str) -> Reading:
        """Parse one line."""
        if self.fatal.search(line):
            return Reading(fatal=True)
        # A progress bar writes all its states into one line, with carriage returns between them.
        percent = next((int(match["percent"]) for match in reversed([*self.percent.finditer(line)])), None)
        stage = next((stage for stage, marker in self.markers if marker.search(line)), None)
        return Reading(stage=Stage.WEIGHTS if percent is not None else stage, percent=percent)

    def read_memory(self, line: str, so_far: ReportedMemory) -> ReportedMemory:
        """Return the figures with those of one more line."""
        if match := self.weights_gib.search(line):
            return replace(so_far, weights_gib=max(float(match[1]), so_far.weights_gib or 0.0))
        if match := self.cache_gib.search(line):
            known = so_far.cache_gib
            return replace(so_far, cache_gib=float(match[1]) if known is None else min(float(match[1]), known))
        if match := self.graphs_gib.search(line):
            return replace(so_far, graphs_gib=max(float(match[1]), so_far.graphs_gib or 0.0))
        return so_far
