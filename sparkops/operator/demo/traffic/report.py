"""What a run of requests came to: a record of each, counts and times of all, and gaps without answers. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Literal

STOPPED = "stopped"  # ended by the load itself: neither a success nor a failure


@dataclass(frozen=True)
class RequestRecord:
    """One request. Times are seconds of the monotonic clock, which all processes of a machine share."""

    kind: Literal["short", "stream"]
    connection: Literal["fresh", "kept"]
    start: float
    end: float
    status: int = 0
    """0 if there was no answer."""
    error: str = ""
    """refused, reset, closed (before an answer), cut (in an answer), timeout, status, wrong, stopped."""
    detail: str = ""
    release: str = ""
    """Header x-sparkops-release."""
    stand_in: str = ""
    """Header x-stand-in."""
    retry_after: str = ""
    openai_error: bool = False
    """Whether the body of an answer that is not 200 has OpenAI's shape."""
    first_s: float = 0.0
    """Seconds to the first event of a stream."""
    pause_s: float = 0.0
    """The longest pause between two parts of a stream."""

    @property
    def latency_s(self) -> float:
        """Seconds from sending to the last byte."""
        return self.end - self.start

    @property
    def ok(self) -> bool:
        """Whether a complete and correct answer came."""
        return not self.error

    @property
    def refused_well(self) -> bool:
        """Whether it is the documented refusal of a service without a release."""
        return self.status == 503 and bool(self.retry_after) and self.openai_error

    @property
    def reason(self) -> str:
        """The failure in a few words."""
        what = f"status {self.status}" if self.error == "status" else self.error
        return f"{self.kind} {what}"


def write(record: RequestRecord) -> str:
    """Return a record as a line."""
    return json.dumps(astuple(record), separators=(",", ":")) + "\n"


def read(lines: Iterable[str]) -> Iterator[RequestRecord]:
    """Return the records of lines, without the incomplete last line of a file that is being written."""
    return (RequestRecord(*json.loads(line)) for line in lines if line.endswith("\n"))


Window = tuple[float, float]


@dataclass(frozen=True)
class TrafficReport:
    """Figures over the requests that were open in a window. Latencies are those of good short answers."""

    shorts: int
    streams: int
    good: int
    """Requests with a complete and correct answer, streams included."""
    refusals: int
    """Refusals as they are documented: 503, Retry-After and a body of OpenAI's shape."""
    failures: dict[str, int]
    """All other failures, by reason."""
    examples: tuple[RequestRecord, ...]
    """The first failures."""
    lost_streams: int
    """Streams without a complete and correct answer, refusals included."""
    rate: float
    """Good short answers per second."""
    p50_s: float
    p99_s: float
    longest_gap_s: float
    """The longest time without a good short answer."""
    releases: dict[str, int]
    """Good answers by x-sparkops-release."""
    stand_ins: dict[str, int]
    """Good answers by x-stand-in."""

    @property
    def lost(self) -> int:
        """Requests without a complete and correct answer, refusals included."""
        return self.refusals + sum(self.failures.values())

    @property
    def clean(self) -> bool:
        """Whether every request got a complete and correct answer."""
        return not self.lost

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {reason}" for reason, count in self.failures.items()) or "none"
        examples = "".join(
            f"\n  {failure.reason} at {failure.start:.3f}: {failure.detail}" for failure in self.examples
        )
        return (
            f"{self.shorts} short requests and {self.streams} streams, {self.good} good, {self.rate:.0f}/s, "
            f"p50 {self.p50_s * 1000:.1f} ms, p99 {self.p99_s * 1000:.1f} ms, "
            f"longest gap {self.longest_gap_s * 1000:.0f} ms, {self.refusals} documented refusals, "
            f"failures: {failed}{examples}"
        )


def report(records: Iterable[RequestRecord], window: Window | None = None) -> TrafficReport:
    """Return the figures of all records, or of those open in a window of the monotonic clock."""
    counted = [record for record in within(records, window) if record.error != STOPPED]
    shorts = [record for record in counted if record.kind == "short"]
    good = [record for record in counted if record.ok]
    ends = sorted(record.end for record in shorts if record.ok)
    begin, end = window or span(counted)
    latencies = sorted(record.latency_s for record in shorts if record.ok)
    failed = [record for record in counted if not record.ok and not record.refused_well]
    return TrafficReport(
        shorts=len(shorts),
        streams=len(counted) - len(shorts),
        good=len(good),
        refusals=sum(record.refused_well for record in counted),
        failures=dict(Counter(record.reason for record in failed).most_common()),
        examples=tuple(failed[:5]),
        lost_streams=sum(record.kind == "stream" and not record.ok for record in counted),
        rate=len([moment for moment in ends if begin <= moment <= end]) / max(end - begin, 1e-9),
        p50_s=quantile(latencies, 0.50),
        p99_s=quantile(latencies, 0.99),
        longest_gap_s=_longest_gap(ends, begin, end),
        releases=dict(Counter(record.release for record in good if record.release)),
        stand_ins=dict(Counter(record.stand_in for record in good if record.stand_in)),
    )


def span(records: list[RequestRecord]) -> Window:
    """Return the time from the first start to the last end."""
    return min((record.start for record in records), default=0.0), max((record.end for record in records), default=0.0)


def within(records: Iterable[RequestRecord], window: Window | None) -> Iterable[RequestRecord]:
    """Return the records of requests that were open at any time of a window."""
    if window is None:
        return records
    begin, end = window
    return (record for record in records if record.end >= begin and record.start <= end)


def quantile(ordered: list[float], share: float) -> float:
    """Return the value that `share` of the ordered values do not exceed; 0 without values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _longest_gap(ends: list[float], begin: float, end: float) -> float:
    points = [begin, *(moment for moment in ends if begin < moment < end), end]
    return max((after - before for before, after in pairwise(points)), default=0.0)
