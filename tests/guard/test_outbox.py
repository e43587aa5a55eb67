"""The queue of notices: numbered, bounded, on disk, and never in the way."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.guard import outbox
from sparkops.guard.durable import Durable
from sparkops.guard.outbox import MOST, Outbox
from sparkops.guard.state import State
from sparkops.notices.catalogue import Code, Notice, NoticeState, noted
from sparkops.notices.message import MOST_TEXT

pytestmark = pytest.mark.unit
FINDING = Notice(Code.FINDING, "makes no step", NoticeState.BEGINS, "chat", "sparkops-chat STALLED")


def opened(directory: Path, lines: list[str] | None = None) -> Outbox:
    return Outbox(directory / "notices", (lines if lines is not None else []).append)


def promoted(number: int) -> Notice:
    return Notice(Code.PROMOTED, f"q-{number} serves", service="chat", subject=f"q-{number}")


def texts(box: Outbox, receiver: str) -> list[str]:
    """Take all notices for a receiver."""
    taken = []
    while due := box.due(receiver):
        taken.append(due[0].notice.text)
        box.sent(receiver, due[0].n)
    return taken


def test_notices_are_numbered_and_each_receiver_gets_each_in_order(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.receivers(["a", "b"])
    for number in range(3):
        box.add(promoted(number))

    assert [numbered.n for numbered in box.since(1)] == [2, 3]
    assert len({numbered.id for numbered in box.since(0)}) == 3
    assert texts(box, "a") == texts(box, "b") == ["q-0 serves", "q-1 serves", "q-2 serves"]


def test_the_queue_and_what_was_sent_survive_a_restart_of_the_guard(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.receivers(["a"])
    box.add(promoted(0))
    box.add(promoted(1))
    first = box.due("a")
    assert first
    box.sent("a", first[0].n)

    again = opened(tmp_path)
    again.add(promoted(2))

    assert texts(again, "a") == ["q-1 serves", "q-2 serves"]
    assert [numbered.n for numbered in again.since(0)] == [1, 2, 3]


def test_a_late_word_of_an_earlier_attempt_sends_nothing_again(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.receivers(["a"])
    for number in range(3):
        box.add(promoted(number))
    box.sent("a", 2)
    box.sent("a", 1)
    box.skip("a", 1, 0)
    due = box.due("a")

    assert due
    assert (due[0].n, due[1]) == (3, 0)


def test_a_new_receiver_gets_what_comes_from_now_on_and_a_removed_one_is_forgotten(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.add(promoted(0))
    box.receivers(["a"])
    box.add(promoted(1))
    assert texts(box, "a") == ["q-1 serves"]

    box.receivers([])
    box.add(promoted(2))
    box.receivers(["a"])
    assert texts(box, "a") == []
    assert box.due("unknown") is None


def test_a_receiver_in_place_of_others_gets_what_waited_for_any_of_them(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.receivers(["wrong", "slow", "right"])
    for number in range(4):
        box.add(promoted(number))
    box.overtake("wrong", 1, 0)
    box.sent("wrong", 2)
    box.sent("slow", 3)
    box.sent("right", 4)
    box.receivers(["corrected", "right"])

    assert texts(box, "corrected") == ["q-2 serves", "q-3 serves"]
    assert [*box.aside("corrected")] == [1]
    assert texts(box, "right") == []
    box.receivers(["corrected", "right", "another"])
    assert texts(box, "another") == []


def test_what_was_set_aside_and_is_not_kept_any_more_is_lost(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.receivers(["a"])
    for number in range(MOST + 1):
        box.add(promoted(number))
        if number == 0:
            box.overtake("a", 1, 0)
    due = box.due("a")

    assert due
    assert (due[0].n, due[1], box.aside("a")) == (2, 1, {})
    box.sent("a", 2)
    after = box.due("a")
    assert after
    assert after[1] == 0


def test_the_oldest_of_too_many_are_dropped_and_counted(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.receivers(["a"])
    for number in range(MOST + 7):
        box.add(promoted(number))
    due = box.due("a")

    assert due
    assert (due[0].n, due[1]) == (8, 7)
    box.skip("a", due[0].n, due[1])
    following = box.due("a")
    assert following
    assert (following[0].n, following[1]) == (9, 8)
    box.sent("a", 9)
    after = box.due("a")
    assert after
    assert after[1] == 0


def test_the_file_has_a_bound_whatever_the_texts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "BYTES", 64 * 1024)
    lines: list[str] = []
    box = opened(tmp_path, lines)
    for number in range(60):
        box.add(replace(promoted(number), text="\x01" * 10_000))

    assert lines == []
    assert len(opened(tmp_path).since(0)) == len(box.since(0)) < 60
    assert len(box.since(0)[-1].notice.text) == MOST_TEXT


def test_a_begin_is_told_once_until_it_ends_and_an_end_only_after_a_begin(tmp_path: Path) -> None:
    box = opened(tmp_path)
    end = replace(FINDING, state=NoticeState.ENDS)
    for notice in (end, FINDING, FINDING, end, end, FINDING):
        box.add(notice)

    assert [numbered.notice.state.value for numbered in box.since(0)] == ["begins", "ends", "begins"]
    assert box.begun([Code.FINDING]) == (FINDING,)
    assert box.begun([Code.NODE_LOST]) == ()


def test_what_nobody_watches_any_more_is_ended(tmp_path: Path) -> None:
    opened(tmp_path).add(FINDING)
    box = opened(tmp_path)
    box.end([Code.FINDING], "not watched")

    assert box.begun([Code.FINDING]) == ()
    assert box.since(1)[0].notice.text == "not watched: makes no step"


def test_a_full_disk_loses_no_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    lines: list[str] = []
    box = opened(tmp_path, lines)
    box.receivers(["a"])
    with monkeypatch.context() as patched:
        patched.setattr(Durable, "write", full)
        box.add(promoted(0))
    box.add(promoted(1))

    assert texts(box, "a") == ["q-0 serves", "q-1 serves"]
    assert lines == ["notices not saved, sent from memory: [Errno 28] No space left on device"]


def test_a_damaged_file_is_moved_aside_and_told_to_every_receiver(tmp_path: Path) -> None:
    box = opened(tmp_path)
    box.receivers(["a"])
    box.add(promoted(0))
    (tmp_path / "notices").write_bytes(b"damaged")

    again = opened(tmp_path)
    again.receivers(["a"])
    again.add(promoted(1))

    first, second = texts(again, "a")
    assert first.startswith("notices that waited on this node cannot be read")
    assert second == "q-1 serves"
    assert (tmp_path / "notices.bad").read_bytes() == b"damaged"


def test_an_event_of_the_history_that_an_operator_must_know_is_a_notice_also_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, lines = State(tmp_path), list[str]()
    state.note_event("chat", {"kind": "phase", "text": "q-1: load"}, lines.append)
    monkeypatch.setattr("sparkops.guard.durable._append", lambda *_: (_ for _ in ()).throw(OSError("full")))
    event = {"kind": "end", "text": "q-1 serves", **noted(Code.PROMOTED, "q-1")}
    state.note_event("chat", event, lines.append)

    assert [numbered.notice.text for numbered in state.outbox.since(0)] == ["q-1 serves"]
    assert lines == ["chat: event not saved: q-1 serves: full"]


def test_a_guard_has_one_outbox_from_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr("sparkops.guard.state.Outbox", lambda file, _: made.append(file))
    State(tmp_path)

    assert made == [tmp_path / "notices"], "made before threads ask for it, of which two could get different ones"
