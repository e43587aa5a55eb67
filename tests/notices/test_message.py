"""What a receiver gets, and when it gets it again."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from sparkops.notices.catalogue import CATALOGUE, Code, Entry, Notice
from sparkops.notices.delivery import FIRST_PAUSE_S, LONGEST_PAUSE_S, REFUSED_S, Attempts, Outcome, outcome
from sparkops.notices.message import Numbered, as_json, packed, shown, signature

pytestmark = pytest.mark.unit
NUMBERED = Numbered(
    7, "ab12", "2026-11-26T15:00:00Z", Notice(Code.REVERTED, "no answer; q-1 serves", service="chat", subject="q-2")
)


def test_a_receiver_verifies_the_time_and_the_body_with_the_key() -> None:
    body = packed(as_json("n1", NUMBERED))
    expected = hmac.new(b"k" * 32, b"1764169200." + body, hashlib.sha256).hexdigest()

    assert signature("k" * 32, body, 1764169200) == f"t=1764169200,v1={expected}"
    assert signature("o" * 32, body, 1764169200) != signature("k" * 32, body, 1764169200)


def test_the_message_that_docs_monitoring_md_shows() -> None:
    assert as_json("n1", NUMBERED, lost=2) == {
        "schema": 1,
        "id": "ab12",
        "node": "n1",
        "n": 7,
        "at": "2026-11-26T15:00:00Z",
        "code": "REVERTED",
        "state": "once",
        "severity": "warning",
        "service": "chat",
        "subject": "q-2",
        "text": "no answer; q-1 serves",
        "next_step": "",
        "lost": 2,
    }
    assert shown(as_json("n1", NUMBERED)) == (
        "2026-11-26T15:00:00Z  warning  REVERTED  n1: chat: no answer; q-1 serves"
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Outcome.DELIVERED),
        (204, Outcome.DELIVERED),
        (301, Outcome.REFUSED),
        (307, Outcome.REFUSED),
        (401, Outcome.REFUSED),
        (404, Outcome.REFUSED),
        (408, Outcome.FAILED),
        (429, Outcome.FAILED),
        (500, Outcome.FAILED),
        (503, Outcome.FAILED),
        (999, Outcome.FAILED),
    ],
)
def test_the_outcome_of_a_status(status: int, expected: Outcome) -> None:
    assert outcome(status) is expected


def test_pauses_double_up_to_the_longest() -> None:
    attempts, pauses = Attempts(), []
    for number in range(40):
        attempts = attempts.after(Outcome.FAILED, float(number))
        pauses.append(attempts.pause_s)

    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert set(pauses[9:]) == {LONGEST_PAUSE_S}


@pytest.mark.parametrize(("result", "given_up"), [(Outcome.FAILED, False), (Outcome.REFUSED, True)])
def test_only_a_notice_that_is_refused_for_hours_is_given_up(result: Outcome, given_up: bool) -> None:
    attempts = Attempts().after(result, 100.0)

    assert not attempts.given_up(100.0 + REFUSED_S - 1)
    assert attempts.given_up(100.0 + REFUSED_S) is given_up


def test_docs_monitoring_md_lists_every_code_with_its_severity_time_and_meaning() -> None:
    page = (Path(__file__).parents[2] / "docs/monitoring.md").read_text()
    rows = [f"| `{code}` | {entry.severity} | {told(entry)} | {entry.meaning} |" for code, entry in CATALOGUE.items()]

    assert [line for line in page.splitlines() if line.startswith(tuple(f"| `{code}`" for code in CATALOGUE))] == rows


def told(entry: Entry) -> str:
    if not entry.lasts:
        return "at once"
    return f"begin after {entry.after_s:.0f} s, end" if entry.after_s else "begin and end"
