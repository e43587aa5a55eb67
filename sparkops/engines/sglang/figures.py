"""SGLang's figures, as sglang/srt/observability/metrics_collector.py of 0.5.23 names them."""

from __future__ import annotations

from sparkops.engines.figures import Figures

RUNNING, WAITING, KV_USE = "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"
GENERATED, PROMPTS = "sglang:generation_tokens_total", "sglang:prompt_tokens_total"
STEPS = ("sglang:realtime_tokens_total", "sglang:num_used_tokens", GENERATED, PROMPTS, RUNNING, WAITING)
"""`realtime_tokens_total` grows with each prefill, and at every 40th decode step (--decode-log-interval); the others,
at the same times or when a request ends."""
FIGURES = Figures(
    running=RUNNING,
    waiting=WAITING,
    # Counted when a request ends, so the speed during a long answer shows as 0 and then as a peak. The counter that
    # grows meanwhile is one for prompts and answers, by a label.
    generated=GENERATED,
    kv_use=KV_USE,
    ttft_s="sglang:time_to_first_token_seconds_sum",
    ttft_count="sglang:time_to_first_token_seconds_count",
    prefix_hits="sglang:cached_tokens_total",
    prefix_queries=PROMPTS,
    # Without drafts: SGLang has gauges of their acceptance, and no count of drafted tokens.
    steps=STEPS,
)
