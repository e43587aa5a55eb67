"""The engine core: admits requests, makes tokens at the speed of the knobs, counts both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from stand_in.answer import Answer
from stand_in.asking import Wanted
from stand_in.knobs import Knobs
from stand_in.metrics import Metrics
from stand_in.startup import KV_TOKENS

STREAM_TICK_S = 0.002  # faster tokens are sent together
WHOLE_TICK_S = 0.25  # interval for the counts of an answer that is not streamed


class Core:
    """The running and waiting requests."""

    def __init__(self, knobs: Knobs, metrics: Metrics, most_at_once: int) -> None:
        self.knobs = knobs
        self.metrics = metrics
        self.places = asyncio.Semaphore(most_at_once)
        self.steps = asyncio.Event()
        """Set while it makes steps; unset it hangs: /metrics stays as it is, as vLLM's does without a step."""

    def slow(self) -> None:
        """Decode at SLOW_TOK_S from the next request on."""
        self.knobs = replace(self.knobs, tok_s=self.knobs.slow_tok_s)

    @asynccontextmanager
    async def admitted(self, wanted: Wanted) -> AsyncIterator[float]:
        """Wait for a place in the batch. Yields the seconds waited."""
        began = time.monotonic()
        await self.steps.wait()
        with _Counted(self.metrics, "num_requests_waiting"):
            await self.places.acquire()
        try:
            with _Counted(self.metrics, "num_requests_running"):
                self._prefill(wanted)
                yield time.monotonic() - began
        finally:
            self.places.release()

    async def run(self, wanted: Wanted, answer: Answer, waited_s: float) -> AsyncGenerator[int]:
        """Yield the number of new tokens until the answer is complete. An early exit counts as aborted."""
        began, first_s, done, ended = time.monotonic(), 0.0, 0, "abort"
        usage = (wanted.prompt_tokens + answer.count) / KV_TOKENS
        self.metrics.add("kv_cache_usage_perc", usage)
        try:
            async for new in self._paced(answer.count, STREAM_TICK_S if wanted.stream else WHOLE_TICK_S):
                first_s = first_s or time.monotonic() - began
                self._decoded(new)
                done += new
                yield new
            ended = "length" if answer.finish == "length" else "stop"
        finally:
            self.metrics.add("kv_cache_usage_perc", -usage)
            self._finished(wanted, done, ended, (waited_s, first_s, time.monotonic() - began))

    async def _paced(self, count: int, tick_s: float) -> AsyncIterator[int]:
        began, done, first_s, step_s = time.monotonic(), 0, self.knobs.ttft_s, 1 / self.knobs.tok_s
        last_s = first_s + step_s * (count - 1)
        await asyncio.sleep(first_s)
        while done < count:
            await self.steps.wait()
            past_s = time.monotonic() - began
            due = min(count, 1 + int((past_s - first_s) / step_s + 1e-6))
            if due > done:
                yield due - done
                done = due
            next_s = min(max(first_s + done * step_s, past_s + tick_s), last_s)
            if done < count:
                await asyncio.sleep(max(0.0, next_s - (time.monotonic() - began)))

    def _prefill(self, wanted: Wanted) -> None:
        tokens = wanted.prompt_tokens
        self.metrics.add("prompt_tokens", tokens)
        self.metrics.add("prompt_tokens_by_source", tokens, 'source="local_compute"')
        self.metrics.add("prefix_cache_queries", tokens)
        self.metrics.observe("iteration_tokens_total", tokens + 1)

    def _decoded(self, new: int) -> None:
        self.metrics.add("generation_tokens", new)
        self.metrics.observe("iteration_tokens_total", 1, new)

    def _finished(self, wanted: Wanted, done: int, ended: str, times: tuple[float, float, float]) -> None:
        waited_s, first_s, run_s = times
        between_s = (run_s - first_s) / max(1, done - 1)
        self.metrics.add("request_success", 1, f'finished_reason="{ended}"')
        observed = {
            "request_prompt_tokens": wanted.prompt_tokens,
            "request_prefill_kv_computed_tokens": wanted.prompt_tokens,
            "request_generation_tokens": done,
            "request_max_num_generation_tokens": done,
            "request_params_n": 1,
            "request_params_max_tokens": wanted.ask.max_tokens or done,
            "request_num_preemptions": 0,
            "time_to_first_token_seconds": waited_s + first_s,
            "request_time_per_output_token_seconds": between_s,
            "e2e_request_latency_seconds": waited_s + run_s,
            "request_queue_time_seconds": waited_s,
            "request_inference_time_seconds": run_s,
            "request_prefill_time_seconds": first_s,
            "request_decode_time_seconds": run_s - first_s,
        }
        for name, value in observed.items():
            self.metrics.observe(name, value)
        if done > 1:
            self.metrics.observe("inter_token_latency_seconds", between_s, done - 1)


class _Counted:
    """A gauge raised by one inside a `with` block."""

    def __init__(self, metrics: Metrics, gauge: str) -> None:
        self.metrics, self.gauge = metrics, gauge

    def __enter__(self) -> None:
        self.metrics.add(self.gauge)

    def __exit__(self, *_: object) -> None:
        self.metrics.add(self.gauge, -1)
