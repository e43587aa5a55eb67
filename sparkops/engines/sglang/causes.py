"""Known causes of a failed start of SGLang, with the next step: texts of 0.5.23, and of 0.5.17 in tests/captured."""

from __future__ import annotations

from sparkops.engines.causes import GIB, SIZE, TORCH, Cause, no_gpu, out_of_gpu_memory, refused_arguments
from sparkops.engines.sglang import configuration

TAKE_LESS = (
    "Lower mem-fraction-static, chunked-prefill-size, cuda-graph-max-bs-decode or max-running-requests in serve.args, "
    "or free memory on the node."
)


def _out_of_memory_at(frame: str, when: str, step: str) -> tuple[Cause, ...]:
    """Return the causes where the memory ran out in a stage of the start, with figures and without.

    `frame`: a line that only this stage prints.
    """
    source = f"{TORCH}; sglang/srt/model_executor/model_runner.py"
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
            unless=r"[Aa]utotun|fall(?:ing)? ?back",
            beside=frame,
        ),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        r"[Pp]ort (\d{1,9}) is (?:already )?in use",
        "another program uses port {}",
        "Find it on the node with `sudo ss -ltnp 'sport = :{}'` and stop it, or change serve.port.",
        source="sglang/srt/utils/common.py",
    ),
    Cause(
        r"[Ww]atchdog timeout \(self\.watchdog_timeout=([\d.]{1,9})(?!.{0,32}soft=True)",
        "the first batch compiled kernels for longer than the {} s of the watchdog, which then ended the server",
        "Raise watchdog-timeout in serve.args for the first start; the cache of the release keeps the "
        "compiled kernels. MAX_JOBS in serve.env sets how many are compiled at once.",
        source="sglang/srt/utils/watchdog.py",
        beside=r"Building JIT|Loading JIT ops|/nvcc .{0,256} -c |Entering DeepGEMM JIT",
    ),
    Cause(
        r"[Ww]atchdog timeout \(self\.watchdog_timeout=([\d.]{1,9})(?!.{0,32}soft=True)",
        "the scheduler made no progress in one batch for the {} s of the watchdog, which then ended the "
        "server: it still compiled kernels, a kernel hangs, or another rank does not answer",
        "Read the stacks that the watchdog printed above; raise watchdog-timeout in serve.args if kernels "
        "were compiled, look at the other rank (`sparkops logs SERVICE --node NODE`), or set another "
        "attention-backend.",
        source="sglang/srt/utils/watchdog.py",
    ),
    Cause(
        r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache(?:.{0,128}total_rest_memory="
        r"(-?[\d.]{1,9}) GB)?",
        "the share of the memory that mem-fraction-static leaves beside the weights ({} GB) has no room for "
        "the state cache of the linear attention (Mamba) layers",
        "Raise mem-fraction-static, lower max-running-requests or speculative-num-draft-tokens, or set "
        "mamba-ssm-dtype to bfloat16, in serve.args.",
        source="sglang/srt/model_executor/model_runner_kv_cache_mixin.py",
    ),
    Cause(
        r"Not enough memory\. Please try to increase --mem-fraction|weights leave no GPU memory for the KV cache",
        "mem-fraction-static leaves no room for a KV cache beside the weights",
        "Raise mem-fraction-static in serve.args, or use a smaller model or more nodes.",
        source="sglang/srt/model_executor/model_runner.py",
    ),
    Cause(
        r"The memory capacity is unbalanced",
        "a node has at least 10 % less free memory than another one",
        "Stop other programs on that node, or drop its page cache: on a Spark it counts as used.",
        source="sglang/srt/model_executor/model_runner.py",
    ),
    Cause(
        rf"Not enough host memory available\. Requesting {GIB} GB but only have {GIB} GB free",
        "the hierarchical cache needs {0} GB of host memory, and {1} GB are free: on a Spark it is the GPU's memory "
        "too",
        "Lower hicache-size or hicache-ratio in serve.args, or leave enable-hierarchical-cache out.",
        source="sglang/srt/mem_cache/memory_pool_host.py",
    ),
    Cause(
        r"The host memory should be larger than the device memory with the current protocol",
        "the hierarchical cache is set smaller than the KV cache of the GPU",
        "Raise hicache-size or hicache-ratio in serve.args, lower max-total-tokens, or leave enable-hierarchical-cache "
        "out.",
        source="sglang/srt/mem_cache/memory_pool_host.py",
    ),
    Cause(
        r"Memory pool size is too small|max_running_request is zero|alloc_req_slots runs out of memory"
        r"|Not enough space for mamba (?:cache|ping pong)",
        "the memory that mem-fraction-static leaves beside the weights has room for no request",
        "Raise mem-fraction-static, or lower max-running-requests or context-length, in serve.args (for a Mamba model: "
        "raise mamba-full-memory-ratio or max-mamba-cache-size); or use a smaller model or more nodes.",
        source="sglang/srt/managers/tp_worker.py, sglang/srt/mem_cache/memory_pool.py",
    ),
    Cause(
        r"torch\.cuda\.mem_get_info\(\) fallback also failed|No GPU memory values found",
        "neither nvidia-smi nor torch can read the size of the GPU's memory: the container does not reach the GPU",
        "Check `gpu` of the node in the inventory (runtime, cdi or devices), then run `sparkops doctor`.",
        source="sglang/srt/utils/common.py",
        unless=r"[Vv]ersion mismatch|couldn't communicate|unknown error|Unknown Error|too old|insufficient",
    ),
    Cause(
        r"FlashAttention v3 Backend requires SM>=80 and SM<=90|'fa3' backend is not supported on Blackwell",
        "the attention backend is FlashAttention 3 (fa3), which is for Hopper GPUs and does not run on the Spark's",
        "Set attention-backend (and mm-attention-backend) to triton or flashinfer in serve.args, or leave it out.",
        source="sglang/srt/layers/attention/attention_registry.py, sglang/srt/layers/attention/vision.py",
    ),
    *_out_of_memory_at(
        r"Capture cuda graph failed|, in (?:init_device_graphs|init_cuda_graphs|capture_\w{1,32})$",
        "while CUDA graphs were captured: weights and KV cache leave too little",
        "Lower mem-fraction-static or cuda-graph-max-bs in serve.args, or set disable-cuda-graph.",
    ),
    *_out_of_memory_at(
        r", in (?:init_memory_pool|_init_pools|_create_buffers)$",
        "when the KV cache was allocated: mem-fraction-static is too large, or another program took memory meanwhile",
        "Lower mem-fraction-static or max-total-tokens in serve.args, or stop other programs on the node (sparkops "
        "stop).",
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
        r"Load weight begin\. avail mem=(1?\d\.\d{1,2}) GB",
        "only {} GB of the node's memory were free before the weights were loaded",
        "Stop other servers on the node (sparkops stop), drop its page cache, use a smaller model or more nodes.",
        source="sglang/srt/model_executor/model_runner.py",
        quiet=True,
    ),
    Cause(
        r"(?:Rank |Subprocess scheduler_)(\d{1,9}) "
        r"(?:scheduler died during initialization \(exit code: -9\)|\(pid=\d{1,9}\) crashed with exit code -9)",
        "the process of rank {} was killed with SIGKILL, most likely because the node's memory was full",
        TAKE_LESS,
        source="sglang/srt/entrypoints/engine.py",
    ),
    Cause(
        r"Capture cuda graph failed: ([^\n]{1,512})",
        "capturing the graphs failed: {}",
        "Set disable-cuda-graph in serve.args to start without graphs, or another attention-backend; if memory is "
        "short, "
        "lower mem-fraction-static or cuda-graph-max-bs-decode.",
        source="sglang/srt/model_executor/cuda_graph_runner.py",
    ),
    Cause(
        r"context_length \((\d{1,20})\) is greater than the derived context_length \((\d{1,20})\)[^\n]{0,256}"
        r"To allow overriding",
        "context-length {0} is more than the model's {1}",
        "Lower context-length in serve.args, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 to extend the context.",
        source="sglang/srt/configs/model_config.py",
    ),
    no_gpu(r"No accelerator \([^)]{0,256}\) or platform plugin is available", "sglang/srt/utils/common.py"),
    *configuration.CAUSES,
    *refused_arguments("SGLang", "use an image whose SGLang accepts it"),
)
"""What SGLang itself raises at a start, the most specific first."""
