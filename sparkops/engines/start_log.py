"""The log of a start: its stages, its figures of memory, the exception and the known cause of a failure. Pure.

The phrases are those of an engine, which declares them as a StartLog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

NEVER = re.compile(r"(?!)")
"""The pattern of what an engine does not log."""
EXCEPTION = re.compile(r"[\w.]{0,256}(?:Error|Exception)(?:\(\w{1,64}\))?: \S")
"""An exception of Python at the start of a line."""


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


class Advice(NamedTuple):
    """The likely cause of a failure, and the next step."""

    cause: str
    step: str


Cause = tuple[str, Callable[[re.Match[str]], Advice]]
"""A pattern and what it means. The pattern is compiled at a failure: `status` imports the engines, and reads no log."""


def known_cause(pattern: str, cause: str, step: str) -> Cause:
    """Return a cause. `{}` in `cause` and `step` is the first group of the pattern, `{2}` the third."""
    return pattern, lambda match: Advice(cause.format(*match.groups()), step.format(*match.groups()))


SIZE = r"[\d.]{1,20} \w{1,20}"
"""A size as torch prints it, such as 2.00 GiB."""


def out_of_gpu_memory(step: str) -> tuple[Cause, Cause]:
    """Return the causes where torch finds too little memory of the GPU, with figures and without."""
    return (
        known_cause(
            rf"CUDA out of memory\. Tried to allocate ({SIZE})\. GPU \d{{1,9}} has a total capacity of ({SIZE}) "
            rf"of which ({SIZE}) is free",
            "an allocation of {0} failed: {2} of the GPU's {1} were free",
            step,
        ),
        known_cause(r"CUDA out of memory|NV_ERR_NO_MEMORY", "the engine ran out of GPU memory", step),
    )


def refused_arguments(engine: str, other: str) -> tuple[Cause, Cause]:
    """Return the causes where argparse refuses an argument or its value. `other`: what to do but remove it."""
    return (
        known_cause(
            r"unrecognized arguments: (.{1,256})",
            f"this {engine} does not accept an argument of serve.args",
            f"Remove {{}} from serve.args, or {other}.",
        ),
        known_cause(
            r": error: argument (-[^\s/:]{1,256})",
            f"this {engine} does not accept the value of {{}}",
            "Correct it in serve.args.",
        ),
    )


ARGUMENTS_REFUSED = r"^\w[\w. ]{0,256}: error: (?:argument |unrecognized arguments: |the following arguments )"
"""The last line of argparse."""


def no_gpu(pattern: str) -> Cause:
    """Return the cause where an engine finds no GPU."""
    step = "Check `gpu` of the node in the inventory (runtime, cdi or devices), then run `sparkops doctor`."
    return known_cause(pattern, "the container has no GPU", step)


DISK_FULL = known_cause(
    r"No space left on device", "the node's disk is full", "Free space on the node: sparkops prune; docker system df"
)


def first_cause(table: Iterable[Cause], text: str) -> Advice | None:
    """Return the advice of the first entry that matches; None if none does."""
    matches = ((advise, match) for pattern, advise in table if (match := re.search(pattern, text)))
    return next((advise(match) for advise, match in matches), None)


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
    """Known causes of a failure with the next step, the most specific one first."""
    percent: re.Pattern[str] = NEVER
    """The loaded part of the weights, as the group `percent`."""
    prefix: re.Pattern[str] = NEVER
    """What stands before the text of an error line, such as time and process."""
    announced: re.Pattern[str] = NEVER
    """Reports of a failure elsewhere; the cause is in another line."""
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

    def headline(self, lines: Sequence[str]) -> str:
        """Return the line of the exception that caused a failure, without its prefix; empty without any error.

        That is the first exception after the engine's report of the failure, because later ones are consequences;
        without a report, the last one.
        """
        texts = [self._text(line) for line in lines]
        reported = next((number for number, text in enumerate(texts) if self.fatal.search(text)), None)
        specific = [number for number, text in enumerate(texts) if self._is_specific(text)]
        if reported is None:
            return texts[specific[-1]] if specific else ""
        return texts[next((at for at in specific if at >= reported), specific[-1] if specific else reported)].strip()

    def cause(self, lines: Iterable[str]) -> Advice | None:
        """Return the known cause in the last lines of a log; None if unknown."""
        return first_cause(self.causes, "\n".join(lines))

    def _text(self, line: str) -> str:
        match = self.prefix.match(line)
        return line[match.end() :] if match else line

    def _is_specific(self, text: str) -> bool:
        is_error = EXCEPTION.match(text) or (self.fatal.search(text) and not text.startswith(" "))
        return bool(is_error and not self.announced.search(text))
