"""The phrases of SGLang's log of a start: the format strings of 0.5.23, and starts of 0.5.17 in tests/captured."""

from __future__ import annotations

import re

from sparkops.engines.sglang.causes import CAUSES
from sparkops.engines.start_log import ARGUMENTS_REFUSED, Stage, StartLog

# In sglang/srt: entrypoints/engine.py and http_server.py, model_executor/model_runner.py, model_executor/
# model_runner_components/cuda_graph_setup.py, model_executor/runner/flashinfer_autotune.py, mem_cache/
# kv_cache_configurator.py, managers/scheduler.py. A single rank has no stage "joining ranks". A draft model is loaded
# after the graphs of the target: a start never returns to an earlier stage, so its lines count as graphs. uvicorn's
# "Application startup complete" is no mark of serving: the server is up before its own warm-up request, and answers
# /health with 503 until that has ended.
MARKERS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.SERVING, re.compile(r"The server is fired up and ready to roll!")),
    (Stage.OPENING, re.compile(r"max_total_num_tokens=\d{1,20}, chunked_prefill_size=|Uvicorn running on ")),
    (Stage.WARMING, re.compile(r"Capture [\w ]{1,64} CUDA graph end\.")),
    (Stage.GRAPHS, re.compile(r"Capture [\w ]{1,64} CUDA graph begin\.")),
    (Stage.TUNING, re.compile(r"Running FlashInfer autotune")),
    (Stage.KV_CACHE, re.compile(r"Memory pool end\.|KV Cache is allocated\.")),
    (Stage.COMPILING, re.compile(r"Load weight end\.")),
    (Stage.WEIGHTS, re.compile(r"Load weight begin\.")),
    (Stage.JOINING, re.compile(r"\bnnodes['\"]?[=:] ?(?!1\b)\d")),
)
SHARDS = re.compile(
    r"(Loading (safetensors|pt|np_cache) checkpoint shards|Multi-thread loading shards"
    r"|Loading safetensors using [\w ]{1,64}):\s{1,8}(?P<percent>\d{1,3})%"
)
FATAL = re.compile(
    r"(?:Scheduler|DetokenizerManager|TokenizerManager|DataParallelController) hit an exception"
    r"|Received sigquit from a child process|SIGQUIT received\.|Initialization failed\."
    r"|scheduler died during initialization|Subprocess \w{1,64} \(pid=\d{1,9}\) crashed with exit code|"
    + ARGUMENTS_REFUSED
)
"""Announcements alone: SGLang catches errors of memory, ports and kernels, and goes on in another way."""
WEIGHTS_LOADED = re.compile(r"Load weight end\..{0,256} mem usage=(\d{1,9}(?:\.\d{1,9})?) GB")
"""In GiB: get_available_gpu_memory in sglang/srt/utils/common.py divides by 2**30. A draft has a line of its own."""
LOG = StartLog(
    markers=MARKERS,
    fatal=FATAL,
    causes=CAUSES,
    percent=SHARDS,
    weights_gib=WEIGHTS_LOADED,
)
