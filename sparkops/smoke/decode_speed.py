"""The decode speed of a release on its node, from the streams of its smoke suite, against its own past there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from sparkops.smoke import claims, openai
from sparkops.smoke.results import SmokeReport

MEASURED = ("streaming", "speed")
"""Checks with one stream of a known number of tokens."""
SPAN_S = 0.5
"""Least seconds between the first and the last piece: below, the pauses of the network and of the client decide."""
LEAST = 0.8
"""Least share of the median of the past: a choice between the spread of starts on an idle node and the 0.6 and less of
a node that has become slow, such as 0.5 of a GPU in its low-power state (`CLOCKS_LOW` of doctor)."""
SLOWER = "slower than before on this node"


def tok_s(report: SmokeReport) -> float | None:
    """Return the fastest stream of the suite in tokens per second; None where none was long enough to measure."""
    return max(_speeds(report), default=None)


def _speeds(report: SmokeReport) -> Iterator[float]:
    for entry in report.transcript:
        if entry.check not in MEASURED or not entry.ok:
            continue
        try:
            stream = openai.stream(entry.reply)
        except openai.Unusable:
            continue
        measured = claims.decode_tok_s(stream)
        if measured is not None and stream.arrivals[-1] - stream.arrivals[0] >= SPAN_S:
            yield measured


def slower(measured: float | None, past: Sequence[float]) -> str:
    """Return that a release is slower than it was on this node, with both figures; empty if it is not, or unknown."""
    if measured is None or not past:
        return ""
    usual, starts = median(past), f"{len(past)} earlier start{'s' if len(past) > 1 else ''}"
    if measured >= LEAST * usual:
        return ""
    return (
        f"{SLOWER}: {measured:.1f} tok/s, {measured / usual:.0%} of the {usual:.1f} tok/s "
        f"of {starts}; expected {LEAST:.0%} or more"
    )
