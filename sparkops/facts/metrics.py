"""vLLM's /metrics."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
GENERATED = "vllm:generation_tokens_total"


@dataclass(frozen=True)
class Load:
    """What an engine is doing: requests in its batch, requests queued, tokens generated since its start."""

    running: int
    waiting: int
    generated: int


def parse(text: str) -> Load:
    """Read vLLM's metrics, the engines of one server added up. Raises ValueError when they are not vLLM's."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in (RUNNING, WAITING, GENERATED):
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    if RUNNING not in sums:
        raise ValueError(f"no {RUNNING} among the metrics")
    return Load(int(sums[RUNNING]), int(sums.get(WAITING, 0)), int(sums.get(GENERATED, 0)))
