"""What a receiver gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.guard.report.message import MOST_TEXT, as_json
from sparkops.swap.catalogue import CATALOGUE, Code, Entry, Notice
from tests.places import ROOT

pytestmark = pytest.mark.unit
AT = "2026-11-26T15:00:00Z"
REVERTED = Notice(Code.REVERTED, "no answer; q-1 serves", service="chat", subject="q-2")


def test_the_message_that_docs_monitoring_md_shows() -> None:
    assert as_json("n1", AT, "ab12", REVERTED) == {
        "schema": 1,
        "id": "ab12",
        "node": "n1",
        "at": AT,
        "code": "REVERTED",
        "state": "once",
        "severity": "warning",
        "service": "chat",
        "subject": "q-2",
        "text": "no answer; q-1 serves",
        "next_step": "",
    }


def test_texts_have_a_bound() -> None:
    message = as_json("n1", AT, "ab12", replace(REVERTED, text="x" * 10_000, next_step="y" * 10_000))

    assert (len(message["text"]), len(message["next_step"])) == (MOST_TEXT, MOST_TEXT)


def test_docs_monitoring_md_lists_every_code_with_its_severity_time_and_meaning() -> None:
    page = (ROOT / "docs/monitoring.md").read_text()
    rows = [f"| `{code}` | {entry.severity} | {told(entry)} | {entry.meaning} |" for code, entry in CATALOGUE.items()]

    assert [line for line in page.splitlines() if line.startswith(tuple(f"| `{code}`" for code in CATALOGUE))] == rows


def told(entry: Entry) -> str:
    if not entry.lasts:
        return "at once"
    return f"begin after {entry.after_s:.0f} s, end" if entry.after_s else "begin and end"
