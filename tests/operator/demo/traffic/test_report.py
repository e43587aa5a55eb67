"""The figures of a report."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.operator.demo.traffic.report import RequestRecord, quantile, read, report, write


def short(start: float, end: float, **more: Any) -> RequestRecord:
    """A short request."""
    return RequestRecord("short", "kept", start, end, **{"status": 200, **more})


REFUSED = {"status": 503, "error": "status"}


def test_a_record_is_the_same_after_it_was_written() -> None:
    record = short(1.0, 2.0, release="q-1", error="status", detail='a "b"\n')
    assert list(read([write(record), write(record)[:9]])) == [record]


def test_all_is_clean_when_all_was_answered() -> None:
    figures = report(
        [short(0, 0.1, release="a"), short(0.1, 0.4, release="b"), RequestRecord("stream", "fresh", 0, 2, 200)]
    )
    assert figures.clean
    assert (figures.shorts, figures.streams, figures.good, figures.releases) == (2, 1, 3, {"a": 1, "b": 1})
    assert [figures.p50_s, figures.p99_s] == pytest.approx([0.3, 0.3])


def test_failures_are_counted_by_their_reason_and_what_the_load_stopped_is_none() -> None:
    records = [
        short(0, 1, status=0, error="refused"),
        short(0, 1, status=0, error="refused"),
        short(0, 1, status=502, error="status"),
        RequestRecord("stream", "kept", 0, 1, 200, error="cut"),
        RequestRecord("stream", "kept", 0, 1, 200, error="stopped"),
    ]
    figures = report(records)
    assert figures.failures == {"short refused": 2, "short status 502": 1, "stream cut": 1}
    assert (figures.good, figures.streams, len(figures.examples)) == (0, 1, 4)
    assert "2 short refused" in str(figures)


def test_only_the_documented_refusal_is_no_failure() -> None:
    documented = short(0, 1, **REFUSED, retry_after="5", openai_error=True)
    bare = short(0, 1, **REFUSED, openai_error=True)
    html = short(0, 1, **REFUSED, retry_after="5")
    figures = report([documented, bare, html])
    assert (figures.refusals, figures.failures, figures.clean) == (1, {"short status 503": 2}, False)


def test_a_window_takes_what_was_under_way_in_it() -> None:
    records = [short(0, 1), short(0.5, 2.5), short(2.1, 2.2), short(3.5, 4)]
    assert report(records, (2.0, 3.0)).shorts == 2
    assert report(records).shorts == 4


def test_the_longest_gap_counts_from_the_window_s_edges() -> None:
    records = [short(0, end) for end in (1.0, 1.2, 3.0)] + [short(0, 2.0, error="refused")]
    assert report(records, (1.0, 3.5)).longest_gap_s == pytest.approx(1.8)
    assert report(records, (0.0, 1.1)).longest_gap_s == pytest.approx(1.0)
    assert report([], (0.0, 2.0)).longest_gap_s == 2.0


@pytest.mark.parametrize(("share", "value"), [(0.5, 51), (0.99, 100), (1.0, 100)])
def test_a_quantile_is_one_of_the_values(share: float, value: float) -> None:
    assert quantile([float(number) for number in range(1, 101)], share) == value
