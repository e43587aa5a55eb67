"""The speed of an engine between two samples of its metrics."""

from __future__ import annotations

import pytest

from sparkops.engines.load import Rates, rates
from sparkops.engines.vllm.figures import FIGURES, GENERATED, KV_USE

PAIRS = [
    FIGURES.by_meaning[meaning]
    for meaning in ("ttft_s", "ttft_count", "prefix_hits", "prefix_queries", "draft_accepted", "drafted")
]
FIRST = {
    GENERATED: 100.0,
    KV_USE: 0.1,
    **dict(zip(PAIRS, (2.0, 10.0, 50.0, 200.0, 30.0, 40.0), strict=True)),
}
SECOND = {
    GENERATED: 180.0,
    KV_USE: 0.3,
    **dict(zip(PAIRS, (3.0, 12.0, 130.0, 300.0, 40.0, 60.0), strict=True)),
}


def test_rates_are_those_between_the_samples() -> None:
    expected = Rates(tok_s=40.0, ttft_s=0.5, kv_use=0.3, prefix_hits=0.8, draft_accepted=0.5)

    assert rates(FIRST, SECOND, 2.0) == expected


def test_without_requests_in_between_means_are_those_since_the_start() -> None:
    expected = Rates(tok_s=0.0, ttft_s=0.2, kv_use=0.1, prefix_hits=0.25, draft_accepted=0.75)

    assert rates(FIRST, FIRST, 1.0) == expected


@pytest.mark.parametrize("sums", [{}, {GENERATED: 0.0, **dict.fromkeys(PAIRS, 0.0)}])
def test_what_was_never_counted_is_unknown(sums: dict[str, float]) -> None:
    assert rates(sums, sums, 1.0) == Rates()


def test_an_engine_that_restarted_between_the_samples_has_no_negative_speed() -> None:
    assert rates(SECOND, FIRST, 1.0) == Rates(0.0, 0.2, 0.1, 0.25, 0.75)
