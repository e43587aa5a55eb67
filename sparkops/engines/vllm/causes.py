"""Known causes of a failed start of vLLM, with the next step.

The patterns match vLLM 0.23 (captured on an H100) and 0.32 (from its source). On a Spark the engine reports the node's
available memory as free memory of the GPU, so the same steps apply.
"""

from __future__ import annotations

import math
import re

from sparkops.engines.causes import GIB, SIZE, TORCH, Advice, Cause, no_gpu, out_of_gpu_memory, refused_arguments
from sparkops.engines.vllm import configuration

TAKE_LESS = (
    "Lower gpu-memory-utilization (or kv-cache-memory-bytes), max-num-batched-tokens or max-num-seqs in serve.args, "
    "or free memory on the node."
)


def _too_little_free(match: re.Match[str], _: str) -> Advice:
    device, (free, total, share, needed) = match[1], map(float, match.groups()[1:])
    cause = f"{free:g} of {total:g} GiB are free on {device}; gpu-memory-utilization {share:g} reserves {needed:g} GiB"
    # Not free / total: if another process has the weights (0.32), the engine's budget is less than its share.
    most = math.floor(100 * (share - (needed - free) / total)) / 100
    step = "Stop the processes that use the memory (on the node: nvidia-smi, docker ps, free -g)"
    lower = f", or set gpu-memory-utilization to {most:.2f} or less in serve.args" if most > 0 else ""
    return Advice(cause, f"{step}{lower}.")


def _window_too_large(match: re.Match[str], _: str) -> Advice:
    length, needed, free, fits = match.groups()
    cause = f"max-model-len {length} needs {needed} GiB of KV cache, and {free} GiB remain for it"
    lower = f"Set max-model-len to {fits} or less" if fits else "Lower max-model-len"
    more = f"{float(needed) - float(free):.2f} GiB more"
    return Advice(cause, f"{lower} in serve.args, or raise gpu-memory-utilization so that it reserves {more}.")


LACKING = re.compile(r"Available KV cache memory: -([\d.]{1,20}) GiB")


def _no_cache(_: re.Match[str], before: str) -> Advice:
    missing = LACKING.search(before)
    lacks = f" {missing[1]} GiB" if missing else ""
    cause = f"gpu-memory-utilization reserves{lacks} less than the model needs without a KV cache"
    more = f" so that it reserves{lacks} more, plus the KV cache" if lacks else ""
    step = f"Raise gpu-memory-utilization in serve.args{more}; or lower max-num-batched-tokens or max-num-seqs."
    return Advice(cause, step)


NOT_CLEARLY_LESS = "|".join(
    rf"{first}\d{{{more}}}\.\d\d GiB\. Available RAM: (?:[0-{first}]\d{{{more}}}|\d{{0,{more}}})\.\d\d GiB"
    for first in range(1, 10)
    for more in range(4)
)
MORE_THAN_FREE = rf"(?={NOT_CLEARLY_LESS})(\d{{1,4}}\.\d\d) GiB\. Available RAM: (\d{{1,4}}\.\d\d) GiB"
"""Sizes of a checkpoint that are not clearly less than the free memory: as many digits or more, the first no "
"smaller."""


def _out_of_memory_at(frame: str, when: str, step: str) -> tuple[Cause, ...]:
    """Return the causes where the memory ran out in a stage of the start, with figures and without.

    `frame`: a line of the traceback that only this stage has.
    """
    source = f"{TORCH}; vllm/v1/worker/gpu_model_runner.py"
    unless = r"[Aa]utotun|fall(?:ing)? ?back"
    figures = (
        rf"CUDA out of memory\. Tried to allocate ({SIZE})\. GPU \d{{1,9}} has a total capacity of ({SIZE}) "
        rf"of which ({SIZE}) is free"
    )
    return (
        Cause(
            figures,
            f"an allocation of {{0}} failed: {{2}} of the GPU's {{1}} were free {when}",
            step,
            source=source,
            beside=frame,
        ),
        Cause(
            r"CUDA out of memory|CUDA [Ee]rror:? out of memory",
            f"the GPU's memory ran out {when}",
            step,
            source=source,
            unless=unless,
            beside=frame,
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        rf"Available memory on node \d{{1,4}} \({GIB}/{GIB} GiB\) on kv cache allocation is less than requested memory "
        rf"for kv \({GIB} GiB\)",
        "{2} GiB of memory were asked for the KV cache, and {0} of {1} GiB are available",
        "Lower VLLM_CPU_KVCACHE_SPACE in serve.env, or free memory on the node.",
        source="vllm/v1/worker/cpu_worker.py",
    ),
    Cause(
        r"Unknown level: '([^']{1,64})'",
        "VLLM_LOGGING_LEVEL has the value {}, which Python's logging does not know",
        "Set it in serve.env to DEBUG, INFO, WARNING or ERROR, or remove it.",
        source="vllm/logger.py",
    ),
    Cause(
        r"Could not load logging config\. File does not exist: %s', '([^']{1,256})'",
        "VLLM_LOGGING_CONFIG_PATH names a file that does not exist in the container: {}",
        "Remove it from serve.env, or name a file of the image.",
        source="vllm/logger.py",
    ),
    Cause(
        r"invalid literal for int\(\) with base 10: 'all'",
        "CUDA_VISIBLE_DEVICES is `all`, where vLLM wants the numbers of GPUs",
        "Remove CUDA_VISIBLE_DEVICES from serve.env: `gpu` of the node in the inventory gives the GPUs.",
        source="vllm/platforms/cuda.py",
        beside=r"vllm/platforms/|CUDA_VISIBLE_DEVICES|physical_device",
    ),
    Cause(
        r"^(?:RuntimeError: )?Error Internal$",
        "a CUTLASS kernel of this image does not run on the GPU of the node (12.1): it was compiled for "
        "another one (such as 12.0a), or its tiles are too large for this GPU",
        "Use an image whose vLLM has code for 12.1 (image.vllm, image.use), or another quantization of the model.",
        source="vllm/csrc/cutlass_extensions/common.hpp",
        beside=r"cutlass",
    ),
    Cause(
        r"Input should be 'ngram', 'medusa'",
        "this vLLM does not know the method of speculative-config in serve.args",
        "Use one of those in the message, or an image with a newer vLLM (image.vllm, image.use).",
        source="vllm/config/speculative.py",
    ),
    Cause(
        rf"Free memory on device (\S{{1,64}}) \({GIB}/{GIB} GiB\) on startup is less than "
        rf"(?:desired GPU memory utilization|the engine's budget[^(]{{0,64}}) \({GIB}, {GIB} GiB\)",
        source="vllm/v1/worker/utils.py",
        explain=_too_little_free,
    ),
    Cause(
        r"max_model_len \((\d{1,20})\) is greater than the derived max_model_len \(\w{1,64}=([\d.]{1,20})",
        "max-model-len {0} is more than the model's {1}",
        "Lower max-model-len in serve.args, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 in serve.env to extend the context.",
        source="vllm/config/model.py",
    ),
    Cause(
        rf"max seq len \((\d{{1,20}})\), \({GIB} GiB KV cache is needed, which is larger than the available "
        rf"KV cache memory \({GIB} GiB\)\."
        r"(?: Based on the available memory, the estimated maximum model length is (\d{1,20}))?",
        source="vllm/v1/core/kv_cache_utils.py",
        explain=_window_too_large,
    ),
    Cause(r"No available memory for the cache blocks", source="vllm/v1/core/kv_cache_utils.py", explain=_no_cache),
    Cause(
        r"Cannot auto-fit max_model_len: not enough GPU memory",
        "the memory that gpu-memory-utilization reserves has no room for a KV cache of even one token beside the model",
        "Raise gpu-memory-utilization in serve.args, lower max-num-batched-tokens or max-num-seqs, or use a smaller "
        "model "
        "or more nodes.",
        source="vllm/v1/core/kv_cache_utils.py",
    ),
    Cause(
        rf"Error in memory profiling\. Initial free memory {GIB}(?: GiB)?, current free memory {GIB}",
        "another program on the node freed memory while vLLM measured how much it needs itself (free before: {0}, "
        "after: "
        "{1})",
        "Deploy again when no other engine on the node starts or stops; kv-cache-memory-bytes in serve.args sets the "
        "KV "
        "cache without measuring.",
        source="vllm/v1/worker/gpu_worker.py",
    ),
    Cause(
        r"CUDA out of memory occurred when warming up (sampler|pooler)[^0-9]{0,64} with (\d{1,9}) dummy requests",
        "the memory ran out when the {0} was warmed up with max-num-seqs = {1} requests: nothing is left beside "
        "weights "
        "and KV cache",
        "Lower max-num-seqs or gpu-memory-utilization in serve.args.",
        source="vllm/v1/worker/gpu_model_runner.py",
    ),
    Cause(
        r"max_num_seqs \((\d{1,9})\) exceeds available Mamba cache blocks \((\d{1,9})\)",
        "the memory has room for the states of {1} sequences, and max-num-seqs is {0}",
        "Set max-num-seqs to {1} or less in serve.args, or raise gpu-memory-utilization.",
        source="vllm/config/compilation.py",
    ),
    Cause(
        r"CUDAGraphMode\.(\w{1,64}) is not supported with (\w{1,64}) backend",
        "the attention backend {1} cannot be captured in CUDA graphs of the mode {0}",
        "Set cudagraph_mode PIECEWISE in compilation-config of serve.args, or another attention-backend.",
        source="vllm/config/compilation.py",
    ),
    Cause(
        r"No valid cudagraph sizes after rounding|Can't determine cudagraph shapes that are both a multiple"
        r"|customized max_cudagraph_capture_size|cudagraph_capture_sizes should contain at least one element"
        r"|Maximum cudagraph size should be greater than or equal to 1",
        "the sizes of CUDA graphs in compilation-config do not go with each other or with the speculative tokens",
        "Remove cudagraph_capture_sizes and max_cudagraph_capture_size from compilation-config in serve.args, or "
        "correct "
        "num_speculative_tokens.",
        source="vllm/config/compilation.py, vllm/config/vllm.py",
    ),
    Cause(
        r"Timed out waiting for mmap file to reach (\d{1,20}) bytes",
        "another worker of the node did not make the shared region of {} bytes for the offloaded KV cache: it ended, "
        "or "
        "/dev/shm is too small",
        "Raise serve.shm_gib, or lower cpu_bytes_to_use of kv-transfer-config in serve.args.",
        source="vllm/v1/kv_offload/cpu/shared_offload_region.py",
        of_others=True,
    ),
    Cause(
        r"CUDA [Ee]rror: out of memory",
        "the host memory for the offloaded KV cache could not be pinned: it needs more than is free, and CUDA reports "
        "that at its next call",
        "Lower cpu_bytes_to_use of kv-transfer-config in serve.args or leave the offloading out, since host and GPU "
        "share "
        "the memory; or use a newer release.",
        source="vllm/v1/kv_offload/cpu/gpu_worker.py",
        beside=r"cudaHostRegister failed",
    ),
    *_out_of_memory_at(
        r", in (?:capture_model|_capture_cudagraphs|profile_cudagraph_memory)$",
        "while CUDA graphs were captured: weights and KV cache leave too little",
        "Lower gpu-memory-utilization, or max_cudagraph_capture_size of compilation-config, in serve.args, or set "
        "enforce-eager.",
    ),
    *_out_of_memory_at(
        r", in (?:_?allocate_kv_cache(?:_tensors)?|initialize_kv_cache_tensors)$",
        "when the KV cache was allocated: another program took memory after vLLM had measured it, or it was set too "
        "large",
        "Stop other programs on the node (sparkops stop), or lower gpu-memory-utilization or kv-cache-memory-bytes.",
    ),
    *_out_of_memory_at(
        r"\.(?:embed_multimodal|get_multimodal_embeddings)\(",
        "when the largest image or video was tried out that the arguments allow",
        "Limit them with limit-mm-per-prompt (0 for a kind that nobody sends) or mm-processor-kwargs in serve.args, or "
        "lower gpu-memory-utilization.",
    ),
    *_out_of_memory_at(
        r", in profile_run$",
        "in the trial run of the largest batch: weights and its activations need more than the node has",
        "Lower max-num-batched-tokens or max-num-seqs in serve.args, stop other programs on the node, or use a smaller "
        "model or more nodes.",
    ),
    *_out_of_memory_at(
        r", in (?:load_model|load_weights|create_weights|process_weights_after_loading)$",
        "while the weights were loaded: they do not fit beside what else uses the memory",
        "Stop other programs on the node (sparkops stop), use a smaller or more quantized model (model.id), or spread "
        "it "
        "over nodes with serve.tensor_parallel.",
    ),
    *out_of_gpu_memory(TAKE_LESS),
    Cause(
        rf"Checkpoint size: {MORE_THAN_FREE}",
        "the memory ran out while weights of {0} GiB were loaded: {1} GiB were available before, so that the load "
        "swaps "
        "or the kernel kills it",
        "Stop other servers on the node (sparkops stop), raise its limit of memory, use a smaller model or more "
        "nodes, or "
        "leave safetensors-load-strategy out of serve.args.",
        source="vllm/model_executor/model_loader/weight_utils.py",
        quiet=True,
    ),
    Cause(
        r"Failed to infer device type",
        "the torch in the image is a build for the CPU",
        "Set image.torch.backend to a CUDA build such as cu130, or use an image whose torch has CUDA; then build.",
        source="vllm/config/device.py",
        beside=r"libtorch_cuda\.so: cannot open|\btorch[ =:]{1,3}[\d.]{1,12}\+cpu\b",
    ),
    Cause(
        r"Failed to infer device type",
        "CUDA cannot be initialized: the libcuda that the process loads does not fit the node's driver: it is that of "
        "cuda-compat in the image, or the driver was updated without a reboot",
        "Put the driver's library folder first in LD_LIBRARY_PATH (serve.env), use an image for the driver's CUDA "
        "(image.use, image.base), or reboot the node after an update of the driver.",
        source="vllm/config/device.py; cuda.h: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        beside=r"Error 80[34]\b|unsupported display driver / cuda driver combination"
        r"|forward compatibility was attempted",
    ),
    Cause(
        r"Failed to infer device type",
        "CUDA cannot be initialized: the node's driver is older than the CUDA of the image",
        "Use an image with an older CUDA (image.use, image.base), or update the driver and reboot.",
        source="vllm/config/device.py; torch/cuda/__init__.py",
        beside=r"driver on your system is too old|CUDA driver version is insufficient",
    ),
    no_gpu(r"Failed to infer device type", "vllm/config/device.py"),
    *configuration.REFUSED,
    *refused_arguments("vLLM", "build a vLLM that accepts it"),
)
"""What vLLM itself raises at a start, the most specific first."""
