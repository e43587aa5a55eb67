"""llama-server's figures (to_metrics in tools/server/server-task.cpp): tests/captured has a page."""

from __future__ import annotations

from sparkops.engines.figures import Figures

RUNNING, WAITING = "llamacpp:requests_processing", "llamacpp:requests_deferred"
FIGURES = Figures(
    running=RUNNING,
    waiting=WAITING,
    # Counted when a request ends: tokens per second are those of the requests that have ended in between.
    generated="llamacpp:tokens_predicted_total",
    draft_accepted="llamacpp:spec_decode_num_accepted_tokens_total",
    drafted="llamacpp:spec_decode_num_draft_tokens_total",
    steps=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", RUNNING, WAITING),
)
"""It has neither the use of the KV cache nor the time to the first token. Tokens from the prefix cache are counted, but
not the sum of which they are a part."""
