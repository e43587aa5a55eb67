"""The phrases of SGLang's log of a start: the format strings of 0.5.23, and starts of 0.5.17 in tests/captured."""

from __future__ import annotations

import re

from sparkops.engines.start_log import (
    ARGUMENTS_REFUSED,
    DISK_FULL,
    Cause,
    Stage,
    StartLog,
    known_cause,
    no_gpu,
    out_of_gpu_memory,
    refused_arguments,
)

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
    r"(Scheduler|DetokenizerManager|TokenizerManager|DataParallelController) hit an exception"
    r"|Received sigquit from a child process|SIGQUIT received\.|Initialization failed\."
    r"|scheduler died during initialization|Subprocess \w{1,64} \(pid=\d{1,9}\) crashed with exit code"
    r"|Capture cuda graph failed|CUDA out of memory|NV_ERR_NO_MEMORY|Not enough memory\. Please try to increase"
    r"|illegal instruction|Unsupported PTX|cudaErrorUnsupportedPtxVersion|[Aa]ddress already in use|"
    + ARGUMENTS_REFUSED
)
PREFIX = re.compile(r"\[[\d-]{1,16} [\d:.]{1,16}[^]]{0,128}\] ?")
"""Time and rank: `[%(asctime)s{prefix}]` of configure_logger in sglang/srt/utils/common.py."""
ANNOUNCED = re.compile(r"hit an exception|Received sigquit from a child process|SIGQUIT received|Initialization failed")
"""Reports of a failure in another process; its traceback is around them."""
WEIGHTS_LOADED = re.compile(r"Load weight end\..{0,256} mem usage=(\d{1,9}(?:\.\d{1,9})?) GB")
"""In GiB: get_available_gpu_memory in sglang/srt/utils/common.py divides by 2**30. A draft has a line of its own."""
TAKE_LESS = (
    "Lower mem-fraction-static, chunked-prefill-size, cuda-graph-max-bs-decode or max-running-requests in serve.args, "
    "or free memory on the node."
)
CAUSES: tuple[Cause, ...] = (
    known_cause(
        r"[Aa]ddress already in use|[Pp]ort \d{1,9} is (?:already )?in use",
        "another program uses the port",
        "Find it with `ss -ltnp` on the node and stop it, or change serve.port.",
    ),
    known_cause(
        r"Not enough memory\. Please try to increase --mem-fraction|weights leave no GPU memory for the KV cache",
        "mem-fraction-static leaves no room for a KV cache beside the weights",
        "Raise mem-fraction-static in serve.args, or use a smaller model or more nodes.",
    ),
    known_cause(
        r"The memory capacity is unbalanced",
        "a node has at least 10 % less free memory than another one",
        "Stop other programs on that node, or drop its page cache: on a Spark it counts as used.",
    ),
    *out_of_gpu_memory(TAKE_LESS),
    known_cause(
        r"(?:Rank |Subprocess scheduler_)(\d{1,9}) "
        r"(?:scheduler died during initialization \(exit code: -9\)|\(pid=\d{1,9}\) crashed with exit code -9)",
        "the process of rank {} was killed with SIGKILL, most likely because the node's memory was full",
        TAKE_LESS,
    ),
    known_cause(
        r"Capture cuda graph failed: ([^\n]{1,512})",
        "capturing the graphs failed: {}",
        "Lower mem-fraction-static or cuda-graph-max-bs-decode in serve.args.",
    ),
    known_cause(
        r"context_length \((\d{1,20})\) is greater than the derived context_length \((\d{1,20})\)[^\n]{0,256}"
        r"To allow overriding",
        "context-length {0} is more than the model's {1}",
        "Lower context-length in serve.args, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 to extend the context.",
    ),
    known_cause(
        r"Unsupported ?PTX|cudaErrorUnsupportedPtxVersion|no kernel image is available",
        "the image has no code for this GPU, or was built for a newer CUDA than the node's driver supports",
        "Use an image for GB10 (sm_121), or update the driver.",
    ),
    # get_device in srt/utils/common.py
    no_gpu(r"No accelerator \([^)]{0,256}\) or platform plugin is available"),
    *refused_arguments("SGLang", "use an image whose SGLang accepts it"),
    DISK_FULL,
    known_cause(
        r"ModuleNotFoundError: No module named '([\w.]{1,256})'",
        "the image lacks a Python module that the engine imports",
        "Add the package that has `{}` to image.packages; then build and deploy again.",
    ),
)
LOG = StartLog(
    markers=MARKERS,
    fatal=FATAL,
    causes=CAUSES,
    percent=SHARDS,
    prefix=PREFIX,
    announced=ANNOUNCED,
    weights_gib=WEIGHTS_LOADED,
)
