"""Values for tests of benchmarks: a result as the tool writes it, and runs with it."""

from __future__ import annotations

from typing import Any

from sparkops.operator.bench.runs import Point, Run, Start

RESULT: dict[str, Any] = {
    "date": "20261130-005500",
    "backend": "openai",
    "model_id": "chat",
    "num_prompts": 8,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 1,
    "duration": 12.345678901234567,
    "completed": 8,
    "failed": 0,
    "total_input_tokens": 8192,
    "total_output_tokens": 2048,
    "request_throughput": 0.6480000000000001,
    "request_goodput": None,
    "output_throughput": 165.88824000000002,
    "total_token_throughput": 829.4412,
    "max_output_tokens_per_s": 180.0,
    "mean_ttft_ms": 101.5,
    "median_ttft_ms": 100.25,
    "p99_ttft_ms": 150.5,
    "mean_tpot_ms": 5.5,
    "median_tpot_ms": 5.0,
    "p99_itl_ms": 9.75,
    "p99_e2el_ms": 1500.0,
}
"""As vLLM 0.32.0 writes it with --save-result (vllm/benchmarks/serve.py), without its other percentiles."""


def point(concurrency: int = 1, **changes: Any) -> Point:
    return Point(concurrency=concurrency, requests=8 * concurrency, complete=True, result={**RESULT, **changes})


def run(*points: Point, **changes: Any) -> Run:
    """A run of the release chat-1, with one point unless others are given."""
    values: dict[str, Any] = {
        "service": "chat",
        "release": "chat-1",
        "started": "20261130T005500Z",
        "node": "n1",
        "sparkops": "0.3.0",
        "recipe": "q",
        "engine": "vllm",
        "image": "sha256:" + "a" * 64,
        "model": "org/q",
        "revision": "c0ffee",
        "model_path": "q",
        "args": {"max-model-len": 4096},
        "via": "gateway",
        "url": "http://10.0.0.1:8000",
        "input_tokens": 1024,
        "output_tokens": 256,
        "seed": 7,
        "tool": {"name": "vllm", "version": "0.32.0"},
        "clocks": ({"sm_mhz": 2398, "max_mhz": 2418, "busy_percent": 96},),
        "memory_total_gib": 121.7,
        "memory_available_gib": 30.5,
        "start": Start(took_s=95.0, stages={"serving": 95.0}, weights_gib=61.5, cache_gib=20.0),
        "points": points or (point(),),
    }
    return Run.model_validate({**values, **changes})
