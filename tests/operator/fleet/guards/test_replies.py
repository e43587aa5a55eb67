"""Past events as a person reads them."""

from __future__ import annotations

from sparkops.operator.fleet.guards.replies import Record, lines, merge, notable, notable_line
from sparkops.swap.catalogue import Code, NoticeState, noted


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


def test_what_other_guards_know_is_listed_by_time_also_of_a_former_leader() -> None:
    own: list[Record] = [{"at": "1", "kind": "phase"}, {"at": "4", "kind": "end"}, {"at": "3", "lasting": False}]
    others: list[Record] = [
        {"at": "2", "kind": "evidence"},
        {"at": "2", "kind": "phase"},
        {"at": "3", "kind": "restart"},
    ]

    assert [event["at"] for event in merge(own, others)] == ["1", "2", "2", "3", "4"]


def test_of_all_services_what_an_operator_must_know_is_listed_by_time() -> None:
    chat: list[Record] = [
        {"at": "1", "kind": "phase", "text": "q-2: load"},
        {"at": "2", "kind": "end", "text": "no answer; q-1 serves\nmore", **noted(Code.REVERTED, "q-2")},
    ]
    code: list[Record] = [
        {"at": "1", "kind": "note", "text": "on hold: fair", **noted(Code.HOLD, state=NoticeState.BEGINS)},
        {"at": "3", "kind": "finding", "text": "slow", "node": "n2", "notice": {"code": "NEWER", "state": "once"}},
        {"at": "4", "kind": "end", "text": "of another form", "notice": "REVERTED"},
    ]
    events = notable({"chat": chat, "code": code})

    assert [(event["service"], event["at"]) for event in events] == [("code", "1"), ("chat", "2"), ("code", "3")]
    assert [notable_line(event) for event in events] == [
        "1  HOLD begins  code: on hold: fair",
        "2  REVERTED  chat: no answer; q-1 serves",
        "3  NEWER  code: n2: slow",
    ]
