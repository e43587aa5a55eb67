"""The first and the last lines of a demonstration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.operator.demo.screen import ALL, DemoResult, Opening, ending, opening
from sparkops.operator.demo.traffic.report import RequestRecord, report

OLD, NEW = "demo-0123456789", "demo-abcdef0123"
GOOD = [
    RequestRecord("short", "fresh", 0.0, 1.0, 200, release=OLD),
    RequestRecord("stream", "kept", 0.5, 3.0, 200, release=NEW),
    RequestRecord("short", "fresh", 3.0, 3.5, 200, release=OLD),
]
CUT = RequestRecord("stream", "kept", 2.0, 2.5, 200, "cut", "the connection ended inside an answer")
REFUSED = RequestRecord("short", "kept", 3.0, 3.1, 503, "status", retry_after="5", openai_error=True)
REFUSED_STREAM = replace(REFUSED, kind="stream")
BEGAN = [("first release", 10.0), ("swap", 40.0), ("", 52.5)]


def result(*records: RequestRecord) -> DemoResult:
    return DemoResult("demo", "stand-in", {"swap": report(GOOD[:2]), ALL: report([*GOOD, *records])}, BEGAN)


def test_the_last_screen_names_what_was_replaced_and_what_was_lost() -> None:
    further = {"Try next": [("sparkops status", "what runs where"), ("sparkops recipes", "")]}

    assert list(ending(result(), further)) == [
        "Lost: 0 of 3 requests, 0 of the 1 streams among them",
        f"stand-in: release {NEW} replaced {OLD} while clients sent requests; a rollback returned to {OLD}.",
        "",
        "        requests  streams  lost  longest wait",
        "swap           2        1     0         2.0 s",
        "in all         3        1     0         2.5 s",
        "\n42 s: first release 30 s, swap 12 s",
        "\nTry next",
        "  sparkops status   what runs where",
        "  sparkops recipes",
    ]


@pytest.mark.parametrize(
    ("record", "streams", "reason"),
    [
        (CUT, "1 of the 2 streams", "lost: stream cut: the connection ended"),
        (REFUSED, "0 of the 1 streams", ""),
        (REFUSED_STREAM, "1 of the 2 streams", ""),
    ],
)
def test_a_request_without_a_complete_answer_is_lost(record: RequestRecord, streams: str, reason: str) -> None:
    lines = "\n".join(ending(result(record), {}))

    assert lines.startswith(f"Lost: 1 of 4 requests, {streams}")
    assert reason in lines
    assert result(record).as_json()["lost"] == 1


def test_a_long_command_has_its_purpose_above_it() -> None:
    long = "sparkops deploy " + "x" * 40
    lines = list(ending(result(), {"Try next": [("sparkops status", "all nodes"), (long, "a swap")]}))

    assert lines[-3:] == ["  sparkops status  all nodes", "  # a swap", f"  {long}"]


def test_the_json_has_the_same_figures() -> None:
    figures = result().as_json()

    assert figures["releases"] == [{"release": OLD, "answered": 2}, {"release": NEW, "answered": 1}]
    assert figures["seconds"] == {"first release": 30.0, "swap": 12.5}
    assert figures["requests"] == {
        "swap": {"sent": 2, "streams": 1, "answered": 2, "lost": 0, "longest_gap_s": 2.0},
        ALL: {"sent": 3, "streams": 1, "answered": 3, "lost": 0, "longest_gap_s": 2.5},
    }


def test_the_first_lines_have_steps_and_topics() -> None:
    shown = Opening("a demo", ["build", "swap"], {"Ports": ["1 in", "2 out"], "Time": ["a minute"]})

    assert list(opening(shown)) == [
        "a demo",
        "  1. build",
        "  2. swap",
        "  Ports  1 in",
        "         2 out",
        "  Time   a minute",
    ]
