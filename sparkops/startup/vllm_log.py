"""Parse the log of a vLLM start: stages, and the exception of a failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum


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

        vLLM 0.32's V2 model runner captures graphs twice, with the same lines: the first time, before it sizes the KV
        cache, only to measure their memory. Only the second time is a stage.
        """
        first = Stage.KV_CACHE.order if self in (Stage.GRAPHS, Stage.WARMING) else 0
        return first <= stage.order < self.order


# Phrases of vLLM 0.17 to 0.32, of both model runners; tests/captured has complete logs of 0.23 and 0.32. Shorter
# patterns would also match the printed configuration, such as "disabling torch.compile". The warm-up begins with the
# end of the capture: there 0.23 compiles its sampling kernels without a log line, 131 s on an H100's first start. A
# single rank prints "world size 1" and has no stage "joining ranks".
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
SHARDS = re.compile(r"[Ll]oading (safetensors|pt|np_cache|shards)[^%]*:\s+(?P<percent>\d{1,3})% Completed")

FATAL = re.compile(
    r"(EngineCore|WorkerProc) (failed|encountered a fatal error)|CUDA out of memory|NV_ERR_NO_MEMORY"
    r"|Error in memory profiling|No available memory for the cache blocks|illegal instruction"
    r"|Unsupported PTX|cudaErrorUnsupportedPtxVersion|[Aa]ddress already in use(?!\. Retrying)"
    r"|Engine core initialization failed"
)
# Prefixes of error lines by vLLM, Ray and torch: the name of the process, in color from Ray.
PREFIX = re.compile(
    r"(?:(?:\x1b\[\d+m)?\([\w-]+ pid=\d+[^)]*\)(?:\x1b\[\d+m)? ?)*(?:\[rank\d+\]: ?)?"
    r"(?:ERROR [\d-]+ [\d:]+ \[[^]]+\] ?)?"
)
EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception)(?:\(\w+\))?: \S")
# Reports of a failure in another process or the core; the cause is in another line.
ANNOUNCED = re.compile(
    r"(EngineCore|WorkerProc) (failed|encountered)|(Engine core|WorkerProc) initialization failed"
    r"|Worker failed with error|\(\w+\): ray::"
)


@dataclass(frozen=True)
class Reading:
    """Contents of one line. `percent`: loaded part of the weights; None on other lines."""

    stage: Stage | None = None
    percent: int | None = None
    fatal: bool = False


def read(line: str) -> Reading:
    """Parse one line of vLLM's log."""
    if FATAL.search(line):
        return Reading(fatal=True)
    percent = int(match["percent"]) if (match := SHARDS.search(line)) else None
    stage = next((stage for stage, marker in MARKERS if marker.search(line)), None)
    return Reading(stage=Stage.WEIGHTS if percent is not None else stage, percent=percent)


FIGURE = r"(-?\d{1,9}(?:\.\d{1,9})?)"
WEIGHTS_LOADED = re.compile(r"Model loading took " + FIGURE + " GiB")
CACHE_LEFT = re.compile(r"Available KV cache memory: " + FIGURE + " GiB")
GRAPHS_TAKEN = re.compile(r"Graph capturing finished in .* took " + FIGURE + " GiB")


@dataclass(frozen=True)
class ReportedMemory:
    """GiB of one rank that vLLM logged at a start; None: it did not, such as no cache with kv-cache-memory-bytes.

    Of several ranks in one log, the largest weights and the smallest cache, which vLLM uses for all.
    """

    weights_gib: float | None = None
    cache_gib: float | None = None
    graphs_gib: float | None = None


def read_memory(line: str, so_far: ReportedMemory) -> ReportedMemory:
    """Return the figures with those of one more line."""
    if match := WEIGHTS_LOADED.search(line):
        return replace(so_far, weights_gib=max(float(match[1]), so_far.weights_gib or 0.0))
    if match := CACHE_LEFT.search(line):
        known = so_far.cache_gib
        return replace(so_far, cache_gib=float(match[1]) if known is None else min(float(match[1]), known))
    if match := GRAPHS_TAKEN.search(line):
        return replace(so_far, graphs_gib=max(float(match[1]), so_far.graphs_gib or 0.0))
    return so_far


def fingerprint(line: str) -> str:
    """Return a line without its numbers, so that a repeated heartbeat is not progress."""
    return re.sub(r"\d+", "#", line)[:200]


def headline(lines: Sequence[str]) -> str:
    """Return the line of the exception that caused a failure, without its prefix; empty without any error.

    That is the first exception after vLLM's report of the failure, because later ones are consequences; without a
    report, the last one.
    """
    texts = [_text(line) for line in lines]
    reported = next((number for number, text in enumerate(texts) if FATAL.search(text)), None)
    specific = [number for number, text in enumerate(texts) if _is_specific(text)]
    if reported is None:
        return texts[specific[-1]] if specific else ""
    return texts[next((at for at in specific if at >= reported), specific[-1] if specific else reported)].strip()


def _text(line: str) -> str:
    match = PREFIX.match(line)
    return line[match.end() :] if match else line


def _is_specific(text: str) -> bool:
    is_error = EXCEPTION.match(text) or (FATAL.search(text) and not text.startswith(" "))
    return bool(is_error and not ANNOUNCED.search(text))
