"""Known causes of a failed start of vLLM, with the next step.

The patterns match vLLM 0.23 (captured on an H100) and 0.32 (from its source). On a Spark the engine reports the node's
available memory as free memory of the GPU, so the same steps apply.
"""

from __future__ import annotations

import math
import re

from sparkops.engines.start_log import (
    DISK_FULL,
    Advice,
    Cause,
    known_cause,
    no_gpu,
    out_of_gpu_memory,
    refused_arguments,
)

TAKE_LESS = (
    "Lower gpu-memory-utilization (or kv-cache-memory-bytes), max-num-batched-tokens or max-num-seqs in serve.args, "
    "or free memory on the node."
)


def _too_little_free(match: re.Match[str]) -> Advice:
    device, (free, total, share, needed) = match[1], map(float, match.groups()[1:])
    cause = f"{free:g} of {total:g} GiB are free on {device}; gpu-memory-utilization {share:g} reserves {needed:g} GiB"
    # Not free / total: if another process has the weights (0.32), the engine's budget is less than its share.
    most = math.floor(100 * (share - (needed - free) / total)) / 100
    step = "Stop the processes that use the memory (on the node: nvidia-smi, docker ps, free -g)"
    lower = f", or set gpu-memory-utilization to {most:.2f} or less in serve.args" if most > 0 else ""
    return Advice(cause, f"{step}{lower}.")


def _window_too_large(match: re.Match[str]) -> Advice:
    length, needed, free, fits = match.groups()
    cause = f"max-model-len {length} needs {needed} GiB of KV cache, and {free} GiB remain for it"
    lower = f"Set max-model-len to {fits} or less" if fits else "Lower max-model-len"
    more = f"{float(needed) - float(free):.2f} GiB more"
    return Advice(cause, f"{lower} in serve.args, or raise gpu-memory-utilization so that it reserves {more}.")


LACKING = re.compile(r"Available KV cache memory: -([\d.]{1,20}) GiB")


def _no_cache(match: re.Match[str]) -> Advice:
    # The log may lack the line, or end long after it: one expression over both would read what lies between again.
    missing = LACKING.search(match.string, 0, match.start())
    lacks = f" {missing[1]} GiB" if missing else ""
    cause = f"gpu-memory-utilization reserves{lacks} less than the model needs without a KV cache"
    more = f" so that it reserves{lacks} more, plus the KV cache" if lacks else ""
    step = f"Raise gpu-memory-utilization in serve.args{more}; or lower max-num-batched-tokens or max-num-seqs."
    return Advice(cause, step)


GIB = r"(\d{1,9}(?:\.\d{1,9})?)"
CAUSES: tuple[Cause, ...] = (
    known_cause(
        r"Insufficient space in /dev/shm",
        "the container's shared memory is too small",
        "Raise serve.shm_gib in the recipe.",
    ),
    known_cause(
        r"[Aa]ddress already in use(?!\. Retrying)",
        "another program uses the port",
        "Find it with `ss -ltnp` on the node and stop it, or change serve.port.",
    ),
    (
        (
            rf"Free memory on device (\S{{1,64}}) \({GIB}/{GIB} GiB\) on startup is less than "
            rf"(?:desired GPU memory utilization|the engine's budget[^(]{{0,64}}) \({GIB}, {GIB} GiB\)"
        ),
        _too_little_free,
    ),
    known_cause(
        r"max_model_len \((\d{1,20})\) is greater than the derived max_model_len \(\w{1,64}=([\d.]{1,20})",
        "max-model-len {0} is more than the model's {1}",
        "Lower max-model-len in serve.args, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 in serve.env to extend the context.",
    ),
    (
        (
            rf"max seq len \((\d{{1,20}})\), \({GIB} GiB KV cache is needed, which is larger than the available "
            rf"KV cache memory \({GIB} GiB\)\."
            r"(?: Based on the available memory, the estimated maximum model length is (\d{1,20}))?"
        ),
        _window_too_large,
    ),
    (
        r"No available memory for the cache blocks",
        _no_cache,
    ),
    *out_of_gpu_memory(TAKE_LESS),
    no_gpu(r"Failed to infer device type"),
    known_cause(
        r"Unsupported ?PTX|cudaErrorUnsupportedPtxVersion",
        "the image was built for a newer CUDA than the node's driver supports",
        "Pin an older CUDA build in the recipe, or update the driver.",
    ),
    *refused_arguments("vLLM", "build a vLLM that accepts it"),
    DISK_FULL,
    # cuda-python up to 12.6 has its own cuda/bindings, which overwrite those of cuda-bindings.
    known_cause(
        r"module '(cuda\.bindings\.\w{1,64})' has no attribute",
        "cuda-python overwrote {} of cuda-bindings with an older one in the image",
        "Add cuda-python to image.remove of the recipe, or pin both to one version in image.override; lock the recipe "
        "again if it has a lock; then build and deploy again.",
    ),
    # Of PyTorch's Inductor (captured with 0.32 on a CPU), and of Triton (triton/runtime/build.py).
    known_cause(
        r"InvalidCxxCompiler|Failed to find C compiler",
        "the image has no C++ compiler, and the engine compiles code when it starts",
        "Add g++ to image.apt, then build and deploy again.",
    ),
    # Last, because a start that fails for another reason may also lack an optional module.
    known_cause(
        r"ModuleNotFoundError: No module named '([\w.]{1,256})'",
        "the image lacks a Python module that the engine imports",
        "Add the package that has `{}` to image.packages, or remove it from image.remove; then build and deploy again.",
    ),
)
