"""The families of vLLM 0.32's /metrics, with its order and texts."""

from __future__ import annotations

from typing import NamedTuple

SECONDS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
WEB = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60)
TO_MODEL_LEN: tuple[float, ...] = ()  # 1, 2, 5, 10, ... up to the model's length

GENERATIONS = tuple(f'generation="{number}"' for number in range(3))
FLOPS = "(for Model Flops Utilization calculations)."
BY_HEADER = "by handler. Only value of header is respected. Otherwise ignored. No percentile calculated. "


class Family(NamedTuple):
    """One family. `series`: the labels that distinguish its samples; `engine`: whether it has the label engine."""

    kind: str
    name: str
    text: str
    series: tuple[str, ...] = ("",)
    buckets: tuple[float, ...] = ()
    engine: bool = True
    created: bool = True


def _by(label: str, *values: str) -> tuple[str, ...]:
    return tuple(f'{label}="{value}"' for value in values)


def _counter(name: str, text: str, series: tuple[str, ...] = ("",), *, engine: bool = True) -> Family:
    return Family("counter", name, text, series, engine=engine)


def _gauge(name: str, text: str, series: tuple[str, ...] = ("",)) -> Family:
    return Family("gauge", name, text, series, created=False)


def _histogram(name: str, text: str, buckets: tuple[float, ...] = SECONDS) -> Family:
    return Family("histogram", name, text, buckets=buckets)


def _gc(name: str, text: str) -> Family:
    return Family("counter", f"python_gc_{name}", text, GENERATIONS, created=False)


PROCESS = (
    _gc("objects_collected", "Objects collected during gc"),
    _gc("objects_uncollectable", "Uncollectable objects found during GC"),
    _gc("collections", "Number of times this generation was collected"),
    Family("gauge", "python_info", "Python platform information", (), created=False),
    _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes."),
    _gauge("process_resident_memory_bytes", "Resident memory size in bytes."),
    _gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds."),
    Family("counter", "process_cpu_seconds", "Total user and system CPU time spent in seconds.", created=False),
    _gauge("process_open_fds", "Number of open file descriptors."),
    _gauge("process_max_fds", "Maximum number of open file descriptors."),
)

ENGINE = (
    _counter("estimated_flops_per_gpu", f"Estimated number of floating point operations per GPU {FLOPS}"),
    _counter("estimated_read_bytes_per_gpu", f"Estimated number of bytes read from memory per GPU {FLOPS}"),
    _counter("estimated_write_bytes_per_gpu", f"Estimated number of bytes written to memory per GPU {FLOPS}"),
    _gauge("num_requests_running", "Number of requests in model execution batches."),
    _gauge("num_requests_waiting", "Number of requests waiting to be processed."),
    _gauge(
        "num_requests_waiting_by_reason",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; "
        "'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). "
        "Sum of all reasons equals vllm:num_requests_waiting.",
        _by("reason", "capacity", "deferred"),
    ),
    _gauge(
        "engine_sleep_state",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; "
        "weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        _by("sleep_state", "awake", "weights_offloaded", "discard_all"),
    ),
    _gauge("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage."),
    _counter("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens."),
    _counter("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens."),
    _counter(
        "external_prefix_cache_queries",
        "External prefix cache queries from KV connector cross-instance cache sharing, "
        "in terms of number of queried tokens.",
    ),
    _counter(
        "external_prefix_cache_hits",
        "External prefix cache hits from KV connector cross-instance cache sharing, "
        "in terms of number of cached tokens.",
    ),
    _counter("mm_cache_queries", "Multi-modal cache queries, in terms of number of queried items."),
    _counter("mm_cache_hits", "Multi-modal cache hits, in terms of number of cached items."),
    _counter("num_preemptions", "Cumulative number of preemption from the engine."),
    _counter("prompt_tokens", "Number of prefill tokens processed."),
    _counter(
        "prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        _by("source", "local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    _counter("prompt_tokens_cached", "Number of cached prompt tokens (local + external)."),
    _counter(
        "prompt_tokens_cached_by_source",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), "
        "disk, p2p (transferred from another vLLM instance) or external_unspecified. "
        "Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
        _by("source", "device", "host", "p2p", "disk", "external_unspecified"),
    ),
    _counter("generation_tokens", "Number of generation tokens processed."),
    _counter(
        "request_success",
        "Count of successfully processed requests.",
        _by("finished_reason", "stop", "length", "abort", "error", "repetition"),
    ),
    _counter(
        "admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        _by("reason", "max_num_queued_reqs", "max_num_queued_tokens"),
        engine=False,
    ),
    _histogram("request_prompt_tokens", "Number of prefill tokens processed.", TO_MODEL_LEN),
    _histogram("request_generation_tokens", "Number of generation tokens processed.", TO_MODEL_LEN),
    _histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", STEP),
    _histogram(
        "request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", TO_MODEL_LEN
    ),
    _histogram("request_params_n", "Histogram of the n request parameter.", (1, 2, 5, 10, 20)),
    _histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", TO_MODEL_LEN),
    _histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", FIRST),
    _histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", BETWEEN),
    _histogram(
        "request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", BETWEEN
    ),
    _histogram("e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."),
    _histogram("request_queue_time_seconds", "Histogram of time spent in WAITING phase for request."),
    _histogram("request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request."),
    _histogram("request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request."),
    _histogram("request_decode_time_seconds", "Histogram of time spent in DECODE phase for request."),
    _histogram(
        "request_num_preemptions",
        "Histogram of the number of times a request was preempted.",
        (1, 2, 3, 4, 5, 10, 20),
    ),
    _histogram(
        "request_prefill_kv_computed_tokens",
        "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
        TO_MODEL_LEN,
    ),
)

CACHE_CONFIG = _gauge("cache_config_info", "Information of the LLMEngine CacheConfig")
CACHE_LABELS = (
    "_block_size_resolved=True block_size=128 cache_dtype=auto cache_hit_alignment_tokens=None "
    "effective_attention_block_size=128 enable_mamba_shared_prefix_checkpoint=False enable_prefix_caching=True "
    "engine=0 gpu_memory_utilization=0.92 hash_block_size=None is_attention_free=False kv_cache_dtype_skip_layers=[] "
    "kv_cache_layout=None kv_cache_max_concurrency=2048.0 kv_cache_memory_bytes=1073741824 "
    "kv_cache_size_tokens=2097152 kv_offloading_backend=native kv_offloading_size=None kv_sharing_fast_prefill=False "
    "mamba_block_size=None mamba_cache_dtype=auto mamba_cache_mode=none mamba_page_size_padded=None "
    "mamba_ssm_cache_dtype=float32 num_cpu_blocks=None num_gpu_blocks=16384 num_gpu_blocks_override=None "
    "prefix_cache_retention_interval=0 prefix_caching_hash_algo=sha256 prefix_match_unit=None replayssm_buffer_len=16 "
    "skip_page_size_padded=None sliding_window=None swa_bounded_replay=True use_kda_recoverssm=False "
    "use_replayssm=False user_specified_block_size=False"
)

HTTP_REQUESTS = _counter("http_requests", "Total number of requests by method, status and handler.")
HTTP_SIZES = (
    Family("summary", "http_request_size_bytes", f"Content length of incoming requests {BY_HEADER}"),
    Family("summary", "http_response_size_bytes", f"Content length of outgoing responses {BY_HEADER}"),
)
HTTP_LATENCY = _histogram(
    "http_request_duration_highr_seconds",
    "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
    WEB,
)
HTTP_DURATION = _histogram(
    "http_request_duration_seconds",
    "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
    (0.1, 0.5, 1),
)
