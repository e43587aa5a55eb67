"""The first and the last lines of a demonstration, of `sparkops demo` and of `make demo`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sparkops.traffic.report import TrafficReport

ALL = "in all"
STREAM = "stream "
"""Start of the reason of a failed stream (RequestRecord.reason)."""


@dataclass(frozen=True)
class DemoResult:
    """The figures of a demonstration."""

    service: str
    engine: str
    parts: Mapping[str, TrafficReport]
    """Reports of the requests during the swap, the rollback and ALL of it."""
    began: Sequence[tuple[str, float]] = ()
    """The parts and when each began, in seconds; the last one is the end."""

    @property
    def total(self) -> TrafficReport:
        return self.parts[ALL]

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that answered, in the order of their first answer: the old one, then the new one."""
        return tuple(self.total.releases)

    @property
    def lost_streams(self) -> int:
        return sum(count for reason, count in self.total.failures.items() if reason.startswith(STREAM))

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds of each part."""
        return {title: round(end_s - begin_s, 1) for (title, begin_s), (_, end_s) in pairwise(self.began)}

    def as_json(self) -> dict[str, object]:
        return {
            "service": self.service,
            "releases": [{"release": name, "answered": count} for name, count in self.total.releases.items()],
            "requests": {name: _figures(report) for name, report in self.parts.items()},
            "lost": self.total.lost,
            "seconds": self.seconds,
        }


def _figures(report: TrafficReport) -> dict[str, object]:
    return {
        "sent": report.shorts + report.streams,
        "streams": report.streams,
        "answered": report.good,
        "lost": report.lost,
        "longest_gap_s": round(report.longest_gap_s, 3),
    }


@dataclass(frozen=True)
class Opening:
    """What a demonstration is going to do, before it asks for consent."""

    title: str
    steps: Sequence[str]
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further lines by topic: rights, ports, files, duration, the end."""


def opening(shown: Opening) -> Iterator[str]:
    """Yield the first lines."""
    yield shown.title
    yield from (f"  {number}. {step}" for number, step in enumerate(shown.steps, 1))
    width = max(map(len, shown.facts), default=0)
    for topic, lines in shown.facts.items():
        yield from (
            f"  {label:<{width}}  {line}" for label, line in zip((topic, *[""] * len(lines)), lines, strict=False)
        )


def ending(result: DemoResult, further: Mapping[str, Sequence[tuple[str, str]]]) -> Iterator[str]:
    """Yield the last screen. `further`: commands and their purpose by topic, such as what to try."""
    yield from _story(result)
    yield ""
    yield from _table(result)
    for failure in result.total.examples:
        yield f"  lost: {failure.reason}: {failure.detail}"
    if result.began:
        yield ""
        parts = ", ".join(f"{title} {seconds:.0f} s" for title, seconds in result.seconds.items())
        yield f"{result.began[-1][1] - result.began[0][1]:.0f} s: {parts}"
    for topic, commands in further.items():
        yield ""
        yield topic
        width = max((len(command) for command, purpose in commands if purpose), default=0)
        yield from (f"  {command:<{width}}  {purpose}".rstrip() for command, purpose in commands)


def _story(result: DemoResult) -> Iterator[str]:
    total, names = result.total, result.releases
    sent = total.shorts + total.streams
    if len(names) > 1:
        yield f"{result.engine}: release {names[0]} served {result.service}."
        yield f"Release {names[1]} replaced it while clients sent requests, then a rollback returned to {names[0]}."
    yield f"{total.lost} of {sent} requests were lost, {result.lost_streams} of {total.streams} streams among them."


def _table(result: DemoResult) -> Iterator[str]:
    yield f"{'':<18}{'answered':>10}{'lost':>6}{'of them streams':>17}{'longest wait':>14}"
    for name, report in result.parts.items():
        gap = f"{report.longest_gap_s:.1f} s"
        yield f"{name:<18}{report.good:>10}{report.lost:>6}{report.streams:>17}{gap:>14}"
    for name, count in result.total.releases.items():
        yield f"{'answered by':<18}{count:>10}      {name}"
