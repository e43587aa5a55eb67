"""What a load saw, in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tests.load.record import STOPPED, Record

Window = tuple[float, float]


@dataclass(frozen=True)
class Report:
    """Figures over the requests that were under way in a window. Latencies are those of good short answers."""

    shorts: int
    streams: int
    good: int
    refusals: int
    """Refusals as they are documented: 503, Retry-After and a body of OpenAI's shape."""
    failures: dict[str, int]
    """Everything else that did not go well, by reason."""
    examples: tuple[Record, ...]
    """The first failures."""
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
    def clean(self) -> bool:
        """Whether every request was answered, whole and right."""
        return not self.failures and not self.refusals

    def __str__(self) -> str:
        failed = ", ".join(f"{count} {reason}" for reason, count in self.failures.items()) or "none"
        examples = "".join(f"\n  {each.reason} at {each.start:.3f}: {each.detail}" for each in self.examples)
        return (
            f"{self.shorts} short requests and {self.streams} streams, {self.good} good, {self.rate:.0f}/s, "
            f"p50 {self.p50_s * 1000:.1f} ms, p99 {self.p99_s * 1000:.1f} ms, "
            f"longest gap {self.longest_gap_s * 1000:.0f} ms, {self.refusals} documented refusals, "
            f"failures: {failed}{examples}"
        )


def report(records: Iterable[Record], window: Window | None = None) -> Report:
    """The figures of all records, or of those under way in a window of the monotonic clock."""
    seen = [each for each in within(records, window) if each.error != STOPPED]
    shorts = [each for each in seen if each.kind == "short"]
    good = [each for each in seen if each.ok]
    ends = sorted(each.end for each in shorts if each.ok)
    begin, end = window or span(seen)
    latencies = sorted(each.latency_s for each in shorts if each.ok)
    failed = [each for each in seen if not each.ok and not each.refused_well]
    return Report(
        shorts=len(shorts),
        streams=len(seen) - len(shorts),
        good=len(good),
        refusals=sum(each.refused_well for each in seen),
        failures=dict(Counter(each.reason for each in failed).most_common()),
        examples=tuple(failed[:5]),
        rate=len([each for each in ends if begin <= each <= end]) / max(end - begin, 1e-9),
        p50_s=quantile(latencies, 0.50),
        p99_s=quantile(latencies, 0.99),
        longest_gap_s=_longest_gap(ends, begin, end),
        releases=dict(Counter(each.release for each in good if each.release)),
        stand_ins=dict(Counter(each.stand_in for each in good if each.stand_in)),
    )


def span(records: list[Record]) -> Window:
    """From the first start to the last end."""
    return min((each.start for each in records), default=0.0), max((each.end for each in records), default=0.0)


def within(records: Iterable[Record], window: Window | None) -> Iterable[Record]:
    """The records of requests that were under way at any time of a window."""
    if window is None:
        return records
    begin, end = window
    return (each for each in records if each.end >= begin and each.start <= end)


def quantile(ordered: list[float], share: float) -> float:
    """The value that `share` of the ordered values do not exceed; 0 of nothing."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _longest_gap(ends: list[float], begin: float, end: float) -> float:
    points = [begin, *(each for each in ends if begin < each < end), end]
    return max((after - before for before, after in pairwise(points)), default=0.0)
