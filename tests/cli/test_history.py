"""`history` as a user meets it: what happened, why, and where the evidence is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.here import Here, install

pytestmark = pytest.mark.local
REVERTED = {
    "event": "reverted",
    "release": "q-2",
    "phase": "verify",
    "why": "here: q-2-green-r0: the smoke suite failed\nlast line",
    "evidence": ["desk: /home/ann/failures/q-2-here", "here: docker cp sparkops-guard:/state/q-2 ."],
}


@pytest.fixture
def sparkops(tmp_path: Path) -> Here:
    return install(tmp_path)


def test_a_revert_is_printed_with_its_reason_and_its_evidence(sparkops: Here) -> None:
    sparkops.guard.remember("chat", {"event": "deployed", "release": "q-1", "mode": "first"})
    sparkops.guard.remember("chat", dict(REVERTED))

    ran = sparkops("history", "chat")

    assert (ran.code, ran.err) == (0, "")
    first, second, *rest = ran.out.splitlines()
    assert [first.split("  ", 1)[1], second.split("  ", 1)[1]] == ["deployed     q-1 first", "reverted     q-2"]
    assert rest == [
        "  why: phase verify: here: q-2-green-r0: the smoke suite failed",
        "    last line",
        "  evidence: desk: /home/ann/failures/q-2-here",
        "    here: docker cp sparkops-guard:/state/q-2 .",
    ]
    assert sparkops("history", "chat", "--json").json["events"][1] == {"at": second.split()[0], **REVERTED}


def test_a_service_without_events_is_reported_on_stderr(sparkops: Here) -> None:
    ran = sparkops("history", "chat")

    assert (ran.code, ran.out, ran.err) == (0, "", "chat: no events recorded by the gateway's guard\n")
