"""The stages of a vLLM start, read from its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Stages in the order in which they come. Engines skip some: --enforce-eager captures no graphs."""

    STARTING = "starting"
    JOINING = "joining ranks"
    WEIGHTS = "loading weights"
    COMPILING = "compiling"
    KV_CACHE = "sizing the KV cache"
    WARMING = "warming up"
    GRAPHS = "capturing graphs"
    OPENING = "opening the API"
    SERVING = "serving"

    @property
    def order(self) -> int:
        """Position; a start never goes back to an earlier stage."""
        return list(Stage).index(self)


# Phrases of vLLM 0.17 to 0.32; tests/facts/captured holds a whole log of the last one. They are whole phrases,
# because an engine also prints its configuration and names what it does not do: "disabling torch.compile".
MARKERS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.SERVING, re.compile(r"Application startup complete")),
    (Stage.OPENING, re.compile(r"init engine \(.*\) took|Starting vLLM (API )?server")),
    (Stage.GRAPHS, re.compile(r"Capturing CUDA graphs|Graph capturing finished")),
    (
        Stage.WARMING,
        re.compile(
            r"Autotuning process starts|Warming up FlashInfer|Warming up model for|Compile and warming up model for"
        ),
    ),
    (Stage.KV_CACHE, re.compile(r"[GC]PU KV cache size:|Available KV cache memory:")),
    (
        Stage.COMPILING,
        re.compile(
            r"(Loading weights|Model loading|torch\.compile) (took|takes) |for vLLM's torch\.compile"
            r"|Dynamo bytecode transform|Compiling a graph"
        ),
    ),
    (Stage.WEIGHTS, re.compile(r"Starting to load model |Loading drafter model")),
    (Stage.JOINING, re.compile(r"rank \d+ in world size|distributed_init_method=|existing Ray cluster")),
)
SHARDS = re.compile(r"[Ll]oading (safetensors|pt|np_cache|shards)[^%]*:\s+(?P<percent>\d+)% Completed")

FATAL = re.compile(
    r"EngineCore (failed|encountered a fatal error)|CUDA out of memory|NV_ERR_NO_MEMORY"
    r"|Error in memory profiling|No available memory for the cache blocks|illegal instruction"
    r"|Unsupported PTX|cudaErrorUnsupportedPtxVersion|[Aa]ddress already in use(?!\. Retrying)"
    r"|Engine core initialization failed"
)

CAUSES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"Insufficient space in /dev/shm"),
        "the container's shared memory is too small: raise serve.shm_gib in the recipe",
    ),
    (
        re.compile(r"[Aa]ddress already in use"),
        "another program has the port: `ss -ltnp` on the node names it; change serve.port or stop it",
    ),
    (
        re.compile(r"CUDA out of memory|NV_ERR_NO_MEMORY|No available memory for the cache blocks"),
        "the engine did not find the memory it wants: lower gpu-memory-utilization or max-model-len, "
        "or free memory on the node",
    ),
    (
        re.compile(r"Unsupported ?PTX|cudaErrorUnsupportedPtxVersion"),
        "the image was built for a newer CUDA than the node's driver can translate: pin an older CUDA build",
    ),
    (
        re.compile(r"unrecognized arguments: (.+)"),
        "this vLLM does not know an argument of serve.args",
    ),
    (
        re.compile(r"No space left on device"),
        "the node's disk is full",
    ),
)


@dataclass(frozen=True)
class Reading:
    """What one line says. `percent` is that of the weights, where the line tells it."""

    stage: Stage | None = None
    percent: int | None = None
    fatal: bool = False


def read(line: str) -> Reading:
    """Read one line of vLLM's log."""
    if FATAL.search(line):
        return Reading(fatal=True)
    percent = int(found["percent"]) if (found := SHARDS.search(line)) else None
    stage = next((stage for stage, marker in MARKERS if marker.search(line)), None)
    return Reading(stage=Stage.WEIGHTS if percent is not None else stage, percent=percent)


def cause(lines: tuple[str, ...]) -> str:
    """The known cause behind the last lines of a log; empty if none is known."""
    return next((text for pattern, text in CAUSES if any(pattern.search(line) for line in lines)), "")


def fingerprint(line: str) -> str:
    """A line without its numbers: a heartbeat repeats, progress does not."""
    return re.sub(r"\d+", "#", line)[:200]
