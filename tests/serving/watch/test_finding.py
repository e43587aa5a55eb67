"""The findings in a guard's report, as `status` reads them."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.serving.watch.finding import EngineFinding, read_findings

pytestmark = pytest.mark.unit
STALL: dict[str, Any] = {
    "code": "STALLED",
    "service": "chat",
    "container": "chat-blue-0",
    "since": 1000.0,
    "detail": "no engine step for 300 s",
    "next_step": "sparkops history chat",
}


@pytest.mark.parametrize(
    "newer",
    [
        {key: value for key, value in STALL.items() if key != "next_step"},
        {**STALL, "since": None},
        {**STALL, "since": "noon"},
        "STALLED",
    ],
    ids=["without a key", "null", "another type", "no mapping"],
)
def test_a_finding_of_another_form_hides_no_others(newer: object) -> None:
    reported = [newer, {**STALL, "seen": 3}]

    assert list(read_findings("n1", reported)) == [EngineFinding(node="n1", **STALL)]


@pytest.mark.parametrize("reported", [None, 0, {}, "none"])
def test_a_report_that_is_no_list_has_no_findings(reported: object) -> None:
    assert list(read_findings("n1", reported)) == []
