"""The past events of a service as a person reads them."""

from __future__ import annotations

from sparkops.plan.history import Record, lines, merge


def test_an_event_of_an_older_version_has_no_more_lines_than_it_knows() -> None:
    assert lines({"at": "T", "event": "deployed", "release": "q", "mode": None}) == ["T  deployed     q"]
    assert lines({"at": "T", "event": "reverted", "release": "q", "why": "a"}) == ["T  reverted     q", "  why: a"]
    assert lines({"at": "T", "event": "guard: retire", "evidence": []}) == ["T  guard: retire"]


def test_events_of_other_guards_are_listed_by_time_where_they_saved_evidence() -> None:
    own: list[Record] = [{"at": "1", "event": "deployed"}, {"at": "3", "event": "guard: revert", "evidence": []}]
    others: list[Record] = [
        {"at": "2", "event": "guard: revert", "evidence": ["n2: x"]},
        {"at": "2", "event": "guard: retire"},
    ]

    assert [event["at"] for event in merge(own, others)] == ["1", "2", "3"]
