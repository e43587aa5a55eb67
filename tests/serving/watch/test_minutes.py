"""Samples of a minute: from two counts of each engine, from a guard's reply, and of several nodes together."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkops.serving.watch.minutes import KEPT, Count, Minute, counted, more_errors, read_minutes, together


def count(at_s: float, generated: float, **more: float) -> Count:
    return Count(at_s, {"generated": generated, **more})


def test_a_minute_has_the_rate_of_all_engines_and_the_mean_of_all_first_tokens() -> None:
    one = (count(0, 100, ttft_s=1.0, ttft_count=2), count(60, 700, ttft_s=2.0, ttft_count=4, waiting=1))
    two = (count(10, 0, ttft_s=0.0, ttft_count=0), count(60, 1000, ttft_s=8.0, ttft_count=8, waiting=3))

    assert counted(7, [one, two], errors=2, held=5) == Minute(
        minute=7, tok_s=30.0, ttft_s=0.9, first_tokens=10, waiting=9, errors=2
    )


def test_an_engine_that_the_guard_did_not_know_before_has_a_queue_and_no_rate() -> None:
    assert counted(7, [(None, count(60, 9000, waiting=2))]) == Minute(minute=7, waiting=2)


def test_a_minute_without_a_first_token_has_no_time_to_it() -> None:
    same = count(0, 5, ttft_s=3.0, ttft_count=4), count(60, 5, ttft_s=3.0, ttft_count=4)

    assert counted(7, [same]) == Minute(minute=7, tok_s=0.0)


@pytest.mark.parametrize(
    ("before", "now", "added"),
    [
        (None, {"1": 9}, None),
        ({}, {"1": 9}, None),
        ({"1": 9}, None, None),
        ({"1": 9}, {"1": 9}, 0),
        ({"1": 9}, {"1": 11, "2": 3}, 5),
        ({"1": 9}, {"2": 3}, 3),
    ],
)
def test_errors_are_those_of_each_process_of_haproxy_and_a_reload_adds_none(
    before: dict[str, int] | None, now: dict[str, int] | None, added: int | None
) -> None:
    assert more_errors(before, now) == added


def test_samples_of_two_nodes_are_one_by_minute_with_the_mean_weighted_by_requests() -> None:
    here = [Minute(minute=1, tok_s=10.0, ttft_s=1.0, first_tokens=1, waiting=1, errors=4), Minute(minute=2)]
    there = [Minute(minute=1, tok_s=5.0, ttft_s=0.5, first_tokens=4, waiting=2)]

    assert together([*here, *there]) == [
        Minute(minute=1, tok_s=15.0, ttft_s=0.6, first_tokens=5, waiting=3, errors=4),
        Minute(minute=2),
    ]


def test_an_hour_is_kept() -> None:
    samples = together(Minute(minute=minute) for minute in range(100))

    assert [sample.minute for sample in samples] == list(range(40, 100))


def test_a_reply_is_read_back_and_what_has_another_form_is_left_out() -> None:
    good = Minute(minute=5, tok_s=1.5, ttft_s=None, first_tokens=0, waiting=2, errors=None)
    wrong: list[dict[str, Any]] = [
        {**asdict(good), key: value}
        for key, value in (("tok_s", "fast"), ("ttft_s", -1), ("waiting", True), ("errors", float("inf")))
    ]

    assert [*read_minutes(json.loads(json.dumps([asdict(good), *wrong, {}, None, 3])))] == [good]
    assert len([*read_minutes([asdict(good)] * 1000)]) == KEPT


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["minute", "tok_s", "first_tokens"]), inner),
)


@given(JSON)
def test_any_reply_is_read_without_an_error(reply: Any) -> None:
    assert isinstance([*read_minutes(reply)], list)
