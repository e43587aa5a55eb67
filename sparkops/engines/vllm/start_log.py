"""The phrases of vLLM's log of a start."""

from __future__ import annotations

import re

from sparkops.engines.start_log import ARGUMENTS_REFUSED, Stage, StartLog
from sparkops.engines.vllm.causes import CAUSES

# Phrases of vLLM 0.17 to 0.32, of both model runners; tests/captured has complete logs of 0.23 and 0.32. Shorter
# patterns would also match the printed configuration, such as "disabling torch.compile". The warm-up begins with the
# end of the capture: there 0.23 compiles its sampling kernels without a log line, 131 s on an H100's first start. A
# single rank prints "world size 1" and has no stage "joining ranks".
MARKERS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.SERVING, re.compile(r"Application startup complete")),
    (Stage.OPENING, re.compile(r"init engine \(.{0,256}\) took|Starting vLLM (API )?server")),
    (Stage.WARMING, re.compile(r"Graph capturing finished|Skipping (encoder and decoder )?CUDA graph capture")),
    (Stage.GRAPHS, re.compile(r"Capturing ([\w-]{1,32} ){0,8}CUDA graphs")),
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
            r"rank \d{1,9} in world size (?!1\b)\d|world_size=(?!1\b)\d{1,9} .{0,256}distributed_init_method="
            r"|existing Ray cluster"
        ),
    ),
)
SHARDS = re.compile(r"[Ll]oading (safetensors|pt|np_cache|shards)[^%]{0,256}:\s{1,8}(?P<percent>\d{1,3})% Completed")

FATAL = re.compile(
    r"^(?!.{0,256} (?:DEBUG|INFO) \d).{0,256}(?:EngineCore|WorkerProc) (?:failed|encountered a fatal error)"
    r"|^(?:\([^)]{1,64}\) ?)?RuntimeError: Engine core initialization failed|" + ARGUMENTS_REFUSED
)
"""Announcements alone: vLLM catches errors of memory, ports and kernels, and goes on in another way."""
FIGURE = r"(-?\d{1,9}(?:\.\d{1,9})?)"
WEIGHTS_LOADED = re.compile(r"Model loading took " + FIGURE + " GiB")
CACHE_LEFT = re.compile(r"Available KV cache memory: " + FIGURE + " GiB")
GRAPHS_TAKEN = re.compile(r"Graph capturing finished in .{0,64} took " + FIGURE + " GiB")

LOG = StartLog(
    markers=MARKERS,
    fatal=FATAL,
    causes=CAUSES,
    percent=SHARDS,
    weights_gib=WEIGHTS_LOADED,
    cache_gib=CACHE_LEFT,
    graphs_gib=GRAPHS_TAKEN,
)
