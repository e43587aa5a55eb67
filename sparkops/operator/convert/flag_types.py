"""Types of the values that flags of `vllm serve` take, in vLLM 0.23.0 and 0.32.0 (sources as in vllm_023.py)."""

from __future__ import annotations

# ruff: noqa: SIM905 - lists of words read better as text
import re
from typing import Any

INTEGERS = frozenset(
    """
    block-size cpu-distributed-timeout-seconds data-parallel-rank data-parallel-rpc-port data-parallel-size
    data-parallel-size-local data-parallel-start-rank data-parallel-supervisor-port dbo-decode-token-threshold
    dbo-prefill-token-threshold dcp-kv-cache-interleave-size decode-context-parallel-size
    distributed-timeout-seconds dp-supervisor-probe-failure-threshold dp-sync-interval elastic-ep-max-dp-size
    grpc-port h11-max-header-count h11-max-incomplete-event-size kv-cache-memory-bytes long-prefill-token-threshold
    mamba-block-size mamba-cache-philox-rounds master-port max-cpu-loras max-cudagraph-capture-size max-log-len
    max-logprobs max-long-partial-prefills max-lora-cls-labels max-lora-rank max-loras max-model-len
    max-num-active-seqs max-num-batched-tokens max-num-partial-prefills max-num-queued-reqs max-num-queued-tokens
    max-num-seqs max-parallel-loading-workers mm-shm-cache-max-object-size-mb nnodes node-rank
    num-gpu-blocks-override offload-group-size offload-num-in-group offload-prefetch-step pipeline-parallel-size
    port prefill-context-parallel-size prefill-schedule-interval prefix-cache-retention-interval prefix-match-unit
    renderer-num-workers replayssm-buffer-len safetensors-prefetch-block-size safetensors-prefetch-num-threads seed
    shutdown-timeout spec-tokens sse-keep-alive-interval ssl-cert-reqs stream-interval tensor-parallel-size
    ubatch-size
    """.split()
)
NUMBERS = frozenset(
    """
    cpu-offload-gb device-memory-utilization dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s
    gpu-memory-utilization kv-cache-metrics-sample kv-offloading-size mm-encoder-fp8-scale-save-margin
    mm-ipc-gpu-memory-gb mm-processor-cache-gb video-pruning-rate watermark
    """.split()
)
BOOLEANS = frozenset(
    """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization async-scheduling calculate-kv-scales
    cohere-is-reasoning-model cudagraph-metrics data-parallel-external-lb data-parallel-hybrid-lb
    data-parallel-multi-port-external-lb dcp-q-replicate disable-cascade-attn disable-chunked-mm-input
    disable-custom-all-reduce disable-fastapi-docs disable-hybrid-kv-cache-manager disable-log-stats
    disable-nccl-for-dp-synchronization disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice
    enable-batch-sharded-sampling enable-chunked-prefill enable-cumem-allocator enable-dbo enable-elastic-ep
    enable-ep-weight-filter enable-eplb enable-expert-parallel enable-fault-tolerance enable-flash-late-interaction
    enable-flashinfer-autotune enable-force-include-usage enable-hc-sp enable-layerwise-nvtx-tracing
    enable-log-deltas enable-log-outputs enable-log-requests enable-logging-iteration-details enable-lora
    enable-mamba-cache-stochastic-rounding enable-mamba-shared-prefix-checkpoint enable-mfu-metrics
    enable-mixed-moe-lora-format enable-mm-embeds enable-moe-shared-loras enable-nccl-comm-suspend
    enable-offline-docs enable-per-request-metrics enable-prefix-caching enable-prompt-embeds
    enable-prompt-tokens-details enable-request-id-headers enable-return-routed-experts enable-scale-out
    enable-server-load-tracking enable-shm-tensor-arena enable-sleep-mode enable-ssl-refresh
    enable-tokenizer-info-endpoint enable-tower-connector-lora enable-trace-replay enforce-eager
    exclude-tools-when-tool-choice-none fail-on-environ-validation fully-sharded-loras grpc headless
    interleave-mm-strings jit-monitor-verbose kv-cache-metrics kv-sharing-fast-prefill language-model-only
    log-error-stack long-prefill-token-threshold-adaptive mm-encoder-only numa-bind ray-workers-use-nsight
    return-sampling-mask return-tokens-as-token-ids scheduler-reserve-full-isl skip-mm-profiling skip-tokenizer-init
    sleep-mode-offload-cudagraph specialize-active-lora swa-bounded-replay tokens-only trust-remote-code
    trust-request-chat-template trust-request-mm-kwargs use-fp64-gumbel use-replayssm use-tqdm-on-load
    """.split()
)
LISTS = frozenset(
    """
    allowed-media-domains api-key collect-detailed-traces cpu-offload-params cudagraph-capture-sizes
    custom-histogram-buckets ignore-patterns kv-cache-dtype-skip-layers logits-processors lora-modules
    lora-target-modules numa-bind-cpus numa-bind-nodes offload-params served-model-name
    sleep-preserve-parameter-names
    """.split()
)
SIZES = frozenset(
    {"max-model-len", "max-num-batched-tokens", "kv-cache-memory-bytes", "safetensors-prefetch-block-size"}
)
"""Numbers that may have a suffix, as in 32k."""
SIZE = re.compile(r"[0-9]+(\.[0-9]+)?[kKmMgGtT]")
TEXTS = frozenset(
    """
    model model-path revision tokenizer tokenizer-path tokenizer-revision code-revision served-model-name
    speculative-draft-model-path speculative-draft-model-revision
    """.split()
)
"""Names, which stay text where they look like a number: the branch 2.10, the model 4."""
SHARES = frozenset({"gpu-memory-utilization", "device-memory-utilization"})


AUTO = "auto"


def in_words(flag: str, value: Any) -> Any:
    """Return a value in the one spelling of a recipe: vLLM also reads -1 and AUTO as its own choice of the context."""
    is_own = flag == "max-model-len" and (value == -1 or str(value).lower() == AUTO) and not isinstance(value, bool)
    return AUTO if is_own else value


class Words(list[Any]):
    """The values of several words after a flag, in contrast to a list in JSON."""


def problem(flag: str, value: Any) -> str:
    """Return why vLLM does not read a value as the type of its flag; empty if it does, or if the type is unknown."""
    if isinstance(value, Words) and flag not in LISTS:
        return f"expected one value, got {' '.join(map(str, value))}"
    if flag in BOOLEANS and not isinstance(value, bool):
        return f"expected no value, got {value}"
    if flag not in BOOLEANS and value is True and not flag.startswith("no-"):
        return "expected a value, got none"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if flag in SHARES and not (number and 0 < value <= 1):
        return f"expected a share of the memory above 0 and up to 1, got {value}"
    if flag == "max-model-len" and not (value == AUTO or _is_size(value) or (isinstance(value, int) and value > 0)):
        return f"expected a number of tokens, or auto; got {value}"
    if flag in NUMBERS and not number:
        return f"expected a number, got {value}"
    whole = isinstance(value, int) or (flag in SIZES and _is_size(value)) or value in ("auto", "None")
    return f"expected a whole number, got {value}" if flag in INTEGERS and not whole else ""


def _is_size(value: Any) -> bool:
    return isinstance(value, str) and SIZE.fullmatch(value) is not None
