"""States that are told once they have lasted, and once more when they end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from sparkops.guard.report.conditions import Conditions, Look, advance
from sparkops.swap.catalogue import CATALOGUE, Code, Notice, NoticeState, noted, of_event

pytestmark = pytest.mark.unit
LOST = Notice(Code.NODE_LOST, "n2: its guard cannot be reached", subject="n2")
AFTER_S = CATALOGUE[Code.NODE_LOST].after_s


@dataclass
class Fleet:
    """Looks one after another."""

    at_s: float = 1000.0
    conditions: Conditions = field(default_factory=Conditions)

    def after(self, seconds: float, *wrong: Notice, unknown: bool = False) -> list[NoticeState]:
        self.at_s += seconds
        look = Look(self.at_s, wrong, frozenset({LOST.key}) if unknown else frozenset())
        self.conditions, due = advance(self.conditions, look)
        return [notice.state for notice in due]


def test_a_state_is_told_once_it_has_lasted_and_once_more_when_it_ends() -> None:
    fleet = Fleet()

    assert fleet.after(0.0, LOST) == []
    assert fleet.after(AFTER_S - 1.0, LOST) == []
    assert fleet.after(1.0, LOST) == [NoticeState.BEGINS]
    assert fleet.after(AFTER_S, LOST) == []
    assert fleet.after(1.0) == [NoticeState.ENDS]
    assert fleet.after(1.0) == []


def test_a_state_that_ends_before_its_time_is_not_told() -> None:
    fleet = Fleet()
    for _ in range(9):
        assert fleet.after(1.0, LOST) == []
        assert fleet.after(AFTER_S - 1.0) == []


def test_what_is_unknown_begins_nothing_and_ends_nothing() -> None:
    fleet = Fleet()
    fleet.after(0.0, LOST)
    fleet.after(AFTER_S, LOST)

    assert fleet.after(9 * AFTER_S, unknown=True) == []
    assert fleet.after(1.0) == [NoticeState.ENDS]
    assert fleet.after(AFTER_S, unknown=True) == []


def test_two_nodes_are_two_states() -> None:
    fleet, other = Fleet(), replace(LOST, subject="n3")
    fleet.after(0.0, LOST)
    fleet.after(AFTER_S / 2, LOST, other)

    assert fleet.after(AFTER_S / 2, LOST, other) == [NoticeState.BEGINS]


def test_every_code_is_in_the_catalogue_and_what_waits_also_ends() -> None:
    assert set(CATALOGUE) == set(Code)
    assert [code for code, entry in CATALOGUE.items() if entry.after_s and not entry.lasts] == []


@pytest.mark.parametrize("code", Code)
def test_an_event_of_a_history_is_the_notice_that_was_noted(code: Code) -> None:
    event = {"text": "q-1 serves", "kind": "end", **noted(code, "q-1", NoticeState.BEGINS, "sparkops status")}

    assert of_event("chat", event) == Notice(
        code, "q-1 serves", NoticeState.BEGINS, service="chat", subject="q-1", next_step="sparkops status"
    )
    assert of_event("chat", {"text": "", "kind": "phase"}) is None
