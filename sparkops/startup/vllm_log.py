"""The log of a vLLM start: its stages, and the exception behind a failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Stages in the order in which they come. Engines skip some: --enforce-eager captures no graphs."""

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

        vLLM 0.32's V2 model runner captures graphs twice: the first time to measure their memory, with the same lines,
        before it sizes the KV cache. That is not the stage.
        """
        first = Stage.KV_CACHE.order if self in (Stage.GRAPHS, Stage.WARMING) else 0
        return first <= stage.order < self.order


# Phrases of vLLM 0.17 to 0.32, of both model runners; tests/captured holds whole logs of 0.23 and 0.32. They are
# whole phrases, because an engine also prints its configuration and names what it does not do: "disabling
# torch.compile". The end of the capture begins the warm-up: 0.23 compiles its sampling kernels there without a line,
# 131 s on an H100's first start. A single rank prints "world size 1" and joins nothing.
MARKERS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.SERVING, re.compile(r"Application startup complete")),
    (Stage.OPENING, re.compile(r"init engine \(.*\) took|Starting vLLM (API )?server")),
    (Stage.WARMING, re.compile(r"Graph capturing finished|Skipping (encoder and decoder )?CUDA graph capture")),
    (Stage.GRAPHS, re.compile(r"Capturing ([\w-]+ )*CUDA graphs")),
    (
        Stage.TUNING,
        re.compile(
            r"Autotuning process starts|Warming up FlashInfer|Compile and warming up model for"
            r"|JIT kernel warmup (starting|\()|DeepGEMM warmup:"
        ),
    ),
    (Stage.KV_CACHE, re.compile(r"[GC]PU KV cache size:|Available KV cache memory:|GiB memory for KV Cache as")),
    (
        Stage.COMPILING,
        re.compile(
            r"(Loading weights|Model loading|torch\.compile) (took|takes) |for vLLM's torch\.compile"
            r"|Dynamo bytecode transform|Compiling a graph|Warming up model for the compilation"
        ),
    ),
    (Stage.WEIGHTS, re.compile(r"Starting to load model |Loading model from scratch|Loading drafter model")),
    (
        Stage.JOINING,
        re.compile(
            r"rank \d+ in world size (?!1\b)\d|world_size=(?!1\b)\d+ .*distributed_init_method="
            r"|existing Ray cluster"
        ),
    ),
)
SHARDS = re.compile(r"[Ll]oading (safetensors|pt|np_cache|shards)[^%]*:\s+(?P<percent>\d+)% Completed")

FATAL = re.compile(
    r"(EngineCore|WorkerProc) (failed|encountered a fatal error)|CUDA out of memory|NV_ERR_NO_MEMORY"
    r"|Error in memory profiling|No available memory for the cache blocks|illegal instruction"
    r"|Unsupported PTX|cudaErrorUnsupportedPtxVersion|[Aa]ddress already in use(?!\. Retrying)"
    r"|Engine core initialization failed"
)
# What vLLM, Ray and torch put before a line of an error: each process its name, Ray in color.
PREFIX = re.compile(
    r"(?:(?:\x1b\[\d+m)?\([\w-]+ pid=\d+[^)]*\)(?:\x1b\[\d+m)? ?)*(?:\[rank\d+\]: ?)?"
    r"(?:ERROR [\d-]+ [\d:]+ \[[^]]+\] ?)?"
)
EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)(?:\(\w+\))?: \S")
# A process reports that another one, or its own core, has failed: the reason is another line.
ANNOUNCED = re.compile(
    r"(EngineCore|WorkerProc) (failed|encountered)|(Engine core|WorkerProc) initialization failed"
    r"|Worker failed with error|\(\w+\): ray::"
)


@dataclass(frozen=True)
class Reading:
    """Contents of one line. `percent`: how much of the weights is loaded; None on other lines."""

    stage: Stage | None = None
    percent: int | None = None
    fatal: bool = False


def read(line: str) -> Reading:
    """Read one line of vLLM's log."""
    if FATAL.search(line):
        return Reading(fatal=True)
    percent = int(match["percent"]) if (match := SHARDS.search(line)) else None
    stage = next((stage for stage, marker in MARKERS if marker.search(line)), None)
    return Reading(stage=Stage.WEIGHTS if percent is not None else stage, percent=percent)


def fingerprint(line: str) -> str:
    """Return a line without its numbers: a heartbeat repeats, progress does not."""
    return re.sub(r"\d+", "#", line)[:200]


def headline(lines: Sequence[str]) -> str:
    """Return the line of the exception that caused a failure, without its prefix; empty without any error.

    That is the first one after vLLM has reported the failure: what follows was caused by it. Where vLLM reports none,
    the process died of the last one.
    """
    texts = [_text(line) for line in lines]
    reported = next((number for number, text in enumerate(texts) if FATAL.search(text)), None)
    specific = [number for number, text in enumerate(texts) if _is_specific(text)]
    if reported is None:
        return texts[specific[-1]] if specific else ""
    return texts[
        next((number for number in specific if number >= reported), specific[-1] if specific else reported)
    ].strip()


def _text(line: str) -> str:
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def _is_specific(text: str) -> bool:
    is_error = EXCEPTION.match(text) or (FATAL.search(text) and not text.startswith(" "))
    return bool(is_error and not ANNOUNCED.search(text))
