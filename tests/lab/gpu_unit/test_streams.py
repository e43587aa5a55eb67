"""Figures of a window of streams: complete ones count, by the tokens that the server reports."""

from __future__ import annotations

import json

import pytest

from tests.lab.gpu.streams import Ended, busiest, processor_times, summary, used

USAGE = b'data: {"choices":[],"usage":{"completion_tokens":128}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("tail", "tokens"),
    [
        (b'data: {"choices":[{}]}\n\n' + USAGE + DONE, 128),
        (b'ces":[{}]}\n\n' + USAGE + DONE, 128),
        (USAGE, 0),
        (b'data: {"choices":[{}]}\n\n' + DONE, 0),
        (b"", 0),
    ],
)
def test_tokens_are_those_that_the_end_of_a_stream_reports(tail: bytes, tokens: int) -> None:
    assert used(tail) == tokens


def test_streams_that_ended_in_the_window_count_and_failures_always() -> None:
    streams = [
        Ended(9.0, 0.1, 1.0, 128),
        Ended(11.0, 0.1, 1.37, 128),
        Ended(19.0, 0.2, 1.47, 128),
        Ended(21.0, 0.1, 1.0, 128),
        Ended(22.0, error="cut"),
    ]

    result = summary(streams, 10.0, 20.0, 0.25, ["vllm 0.99"], [40.0, 42.0])

    assert (result.streams, result.rate, result.failures) == (2, 25.6, {"cut": 1})
    assert result.token_s == pytest.approx(0.01)
    assert str(result) == (
        "26 tokens/s, 2 complete streams, first token p50 200 ms and p99 200 ms, from token to token 10.00 ms, "
        "failures: 1 cut; GPU utilization 40 %, 42 %; cores: vllm 0.99; each process of the load at most 0.25"
    )


def test_processes_are_named_by_the_cores_that_they_used() -> None:
    before = {1: ("init", 5.0), 2: ("vllm", 10.0), 3: ("EngineCore", 0.0), 4: ("gone", 0.0)}
    after = {1: ("init", 5.1), 2: ("vllm", 15.0), 3: ("EngineCore", 9.9), 5: ("new", 9.0)}

    assert busiest(before, after, 10.0) == ["EngineCore 0.99", "vllm 0.50"]


def test_processor_times_are_read_of_every_process() -> None:
    assert json.dumps(processor_times())
