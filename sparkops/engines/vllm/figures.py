"""vLLM's figures: tests/captured has the page of 0.32."""

from __future__ import annotations

from sparkops.engines.figures import Figures

RUNNING, WAITING, GENERATED = "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:generation_tokens_total"
KV_USE = "vllm:kv_cache_usage_perc"
STEPS = (
    "vllm:iteration_tokens_total_count",
    "vllm:prompt_tokens_total",
    GENERATED,
    KV_USE,
    RUNNING,
    WAITING,
)
"""A step that only reads a piece of a long prompt changes the cache's use."""
FIGURES = Figures(
    running=RUNNING,
    waiting=WAITING,
    generated=GENERATED,
    kv_use=KV_USE,
    ttft_s="vllm:time_to_first_token_seconds_sum",
    ttft_count="vllm:time_to_first_token_seconds_count",
    prefix_hits="vllm:prefix_cache_hits_total",
    prefix_queries="vllm:prefix_cache_queries_total",
    draft_accepted="vllm:spec_decode_num_accepted_tokens_total",
    drafted="vllm:spec_decode_num_draft_tokens_total",
    steps=STEPS,
)
