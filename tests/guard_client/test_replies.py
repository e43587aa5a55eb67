"""The past events of a service as a person reads them."""

from __future__ import annotations

from sparkops.guard_client.replies import Record, lines, merge


def test_an_event_is_a_line_with_its_node_and_what_follows_is_indented() -> None:
    event = {
        "at": "T",
        "kind": "failure",
        "node": "n2",
        "text": "q ended\nnext: look",
        "evidence": ["n2: docker cp a ."],
    }

    assert [*lines(event)] == ["T  failure  n2: q ended", "  next: look", "  evidence: n2: docker cp a ."]
    assert [*lines({"at": "T", "kind": "end", "text": "q serves"})] == ["T  end      q serves"]


def test_what_only_another_guard_knows_is_listed_by_time() -> None:
    own: list[Record] = [{"at": "1", "kind": "phase"}, {"at": "4", "kind": "end"}, {"at": "3", "lasting": False}]
    others: list[Record] = [
        {"at": "2", "kind": "evidence"},
        {"at": "2", "kind": "phase"},
        {"at": "3", "kind": "restart"},
    ]

    assert [event["at"] for event in merge(own, others)] == ["1", "2", "3", "4"]
