"""Decide from samples of its container whether a start succeeds or fails. Pure: time is an argument.

A start has no short fixed deadline, because a model of 122B parameters takes 12 minutes and more on a Spark. It fails
if its container exits, the log has a fatal line, or it makes no progress for as long as `probe.startup` of the recipe
allows. Progress is a new log line, another percentage, CPU time or bytes read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sparkops.config.startup import Startup
from sparkops.engines.causes import Cause
from sparkops.engines.start_log import ReportedMemory, Stage, StartLog, fingerprint
from sparkops.serving.memory import relief
from sparkops.serving.startup.explain import Explanation, explain

WINDOW_S = 30.0  # interval for CPU time and bytes read; half of the stall time if that is shorter
CPU_MOVES = 5.0 / 30  # CPU seconds per second: compiling, tuning and graph capture are silent but busy
READ_MOVES = 50_000_000 / 30  # bytes per second
KEEP_LINES = 1500  # the root precedes the tracebacks of several processes, and NCCL's lines
KEEP_KNOWN = 5000
EXITED = "its process exited"


class Line(NamedTuple):
    """A line of the log. `at_s` is seconds since the container's start."""

    at_s: float
    text: str


@dataclass(frozen=True)
class MemorySample:
    """GiB that the node has available and that the container uses, `at_s` seconds after the start."""

    at_s: float
    available_gib: float
    container_gib: float


@dataclass(frozen=True)
class Sample:
    """One sample of a starting container. `at_s` is seconds since its start.

    `restarted`: Docker has restarted its process since the first sample.
    """

    at_s: float
    lines: tuple[Line, ...] = ()
    running: bool = True
    restarted: bool = False
    exit_code: int = 0
    oom_killed: bool = False
    available_gib: float | None = None
    healthy: bool = False
    cpu_s: float = 0.0
    read_bytes: int = 0


@dataclass(frozen=True)
class Watch:
    """The state of a start after some samples."""

    limits: Startup
    log: StartLog
    """Of its engine."""
    causes: tuple[Cause, ...] = ()
    """Of its engine and of the layers below it."""
    floor_gib: float = 0.0
    low: tuple[float, ...] = ()
    """Available GiB of the node in the latest samples below `floor_gib`."""
    stage: Stage = Stage.STARTING
    percent: int | None = None
    reached: tuple[tuple[Stage, float], ...] = ((Stage.STARTING, 0.0),)
    moved_s: float = 0.0
    window: Sample = field(default_factory=lambda: Sample(0.0))
    known_lines: frozenset[str] = frozenset()
    tail: tuple[str, ...] = ()
    memory: ReportedMemory = field(default_factory=ReportedMemory)
    fatal: bool = False
    healthy: bool = False
    failure: str = ""

    @property
    def over(self) -> bool:
        return self.healthy or bool(self.failure)

    @property
    def text(self) -> str:
        """The stage as text: `loading weights 40 %`."""
        return f"{self.stage} {self.percent} %" if self.percent is not None else str(self.stage)


def advance(watch: Watch, sample: Sample) -> Watch:
    """Return the state after one more sample."""
    watch = _read_lines(watch, sample)
    watch = _check_work(watch, sample)
    watch = _check_memory(watch, sample)
    if sample.healthy:
        return replace(_reach(watch, Stage.SERVING, sample.at_s, sample.at_s), healthy=True, failure="")
    failure = explanation(watch).root if watch.fatal else watch.failure or _failure(watch, sample)
    return replace(watch, failure=failure)


def explanation(watch: Watch) -> Explanation:
    """Return what the log says of the failure: its root, and its cause if that is known."""
    return _explain(watch, stalled=not watch.fatal and not watch.failure.startswith(EXITED))


def _explain(watch: Watch, *, stalled: bool) -> Explanation:
    return explain(watch.tail, watch.causes, stalled=stalled, served=watch.stage is Stage.SERVING)


def _read_lines(watch: Watch, sample: Sample) -> Watch:
    for at_s, line in sample.lines:
        reading = watch.log.read(line)
        mark = fingerprint(line)
        new = mark not in watch.known_lines or (reading.percent is not None and reading.percent != watch.percent)
        known = watch.known_lines | {mark} if len(watch.known_lines) < KEEP_KNOWN else watch.known_lines
        tail = (*watch.tail, line)[-KEEP_LINES:]
        fatal = watch.fatal or reading.fatal
        moved_s = sample.at_s if new else watch.moved_s
        memory = watch.log.read_memory(line, watch.memory)
        watch = replace(watch, known_lines=known, tail=tail, fatal=fatal, moved_s=moved_s, memory=memory)
        if reading.stage is not None:
            watch = _reach(watch, reading.stage, at_s, sample.at_s)
        if watch.stage is Stage.WEIGHTS and reading.percent is not None:
            watch = replace(watch, percent=reading.percent)
    return watch


def _reach(watch: Watch, stage: Stage, at_s: float, sampled_s: float) -> Watch:
    if not stage.follows(watch.stage):
        return watch
    return replace(watch, stage=stage, percent=None, reached=(*watch.reached, (stage, at_s)), moved_s=sampled_s)


def _stall_s(watch: Watch) -> float:
    loading = watch.stage.order <= Stage.WEIGHTS.order
    return watch.limits.stall_s if loading else watch.limits.compile_stall_s


def _check_work(watch: Watch, sample: Sample) -> Watch:
    took_s = sample.at_s - watch.window.at_s
    if took_s < min(WINDOW_S, _stall_s(watch) / 2):
        return watch
    worked = sample.cpu_s - watch.window.cpu_s >= CPU_MOVES * took_s
    read = sample.read_bytes - watch.window.read_bytes >= READ_MOVES * took_s
    moved_s = sample.at_s if worked or read else watch.moved_s
    return replace(watch, window=sample, moved_s=moved_s)


def _check_memory(watch: Watch, sample: Sample) -> Watch:
    gib = sample.available_gib
    if gib is None or not sample.running:  # an exited engine has freed its memory
        return watch
    return replace(watch, low=(*watch.low, gib) if gib < watch.floor_gib else ())


def _failure(watch: Watch, sample: Sample) -> str:
    if len(watch.low) >= relief.LOOKS or (watch.low and not sample.running):
        return f"the node had {min(watch.low):.1f} GiB of memory left (stage: {watch.text})"
    if not sample.running:
        return _end(watch, sample)
    if sample.restarted:
        return f"its process exited and Docker restarted it (stage: {watch.text})"
    stall_s = _stall_s(watch)
    if sample.at_s - watch.moved_s > stall_s:
        return f"no progress for {stall_s:.0f} s (stage: {watch.text})"
    if sample.at_s > watch.limits.max_s:
        return f"not ready after {watch.limits.max_s:.0f} s (stage: {watch.text})"
    return ""


def _end(watch: Watch, sample: Sample) -> str:
    """Return how the process ended, with its last error unless the kernel killed it."""
    if sample.oom_killed:
        return f"its process was OOM-killed (stage: {watch.text})"
    error = _explain(watch, stalled=False).root
    return f"{EXITED} with code {sample.exit_code} (stage: {watch.text})" + (f": {error}" if error else "")


def memory_csv(samples: Iterable[MemorySample]) -> str:
    """Return the memory samples of a start as CSV."""
    rows = (f"{sample.at_s:.1f},{sample.available_gib:.2f},{sample.container_gib:.2f}\n" for sample in samples)
    return "time_s,available_gib,container_gib\n" + "".join(rows)
