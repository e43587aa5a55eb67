"""The decode speed of a release against its own past on the node."""

from __future__ import annotations

import json

import pytest

from sparkops.exchange import Reply, Request
from sparkops.smoke import decode_speed
from sparkops.smoke.results import Entry, SmokeReport


def entry(pieces: int, span_s: float, *, check: str = "streaming", ok: bool = True, done: bool = True) -> Entry:
    """A stream of so many pieces of a token each, the last one `span_s` after the first."""
    lines = [
        (1.0 + span_s * number / (pieces - 1), {"choices": [{"delta": {"content": "a "}}]}) for number in range(pieces)
    ]
    usage = {"choices": [], "usage": {"completion_tokens": pieces}}
    parts = [(at_s, f"data: {json.dumps(event)}\n\n") for at_s, event in [*lines, (1.0 + span_s, usage)]]
    parts += [(1.0 + span_s, "data: [DONE]\n\n")] if done else []
    reply = Reply(200, took_s=1.0 + span_s, parts=tuple(parts))
    return Entry(check, 1, 0.0, Request("/v1/chat/completions"), reply, ok)


def report(*entries: Entry) -> SmokeReport:
    return SmokeReport(1, 1, (), entries, 1.0)


def test_the_fastest_stream_of_the_suite_is_the_speed() -> None:
    streams = (entry(51, 1.0), entry(61, 1.0, check="speed"), entry(99, 1.0, check="text"))

    assert decode_speed.tok_s(report(*streams)) == pytest.approx(60.0)


@pytest.mark.parametrize(
    "stream", [entry(51, 0.4), entry(51, 1.0, ok=False), entry(51, 1.0, done=False), entry(51, 1.0, check="tools")]
)
def test_a_stream_that_is_short_cut_or_of_another_check_has_no_speed(stream: Entry) -> None:
    assert decode_speed.tok_s(report(stream)) is None


def test_a_release_that_lost_a_fifth_of_its_usual_speed_is_slower() -> None:
    past = (48.0, 50.0, 90.0)

    assert decode_speed.slower(30.0, past) == (
        "slower than before on this node: 30.0 tok/s, 60% of the 50.0 tok/s of 3 earlier starts; expected 80% or more"
    )
    assert decode_speed.slower(40.0, past) == ""
    assert decode_speed.slower(39.9, past) != ""
    assert (decode_speed.slower(None, past), decode_speed.slower(30.0, ())) == ("", "")
