"""The first and the last lines of a demonstration, of `sparkops demo` and of `make demo`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sparkops.operator.demo.traffic.report import TrafficReport

ALL = "in all"
BESIDE = 40
"""Characters of the longest command that has its purpose on its own line."""


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
    total, names = result.total, result.releases
    sent = total.shorts + total.streams
    yield f"Lost: {total.lost} of {sent} requests, {total.lost_streams} of the {total.streams} streams among them"
    if len(names) > 1:
        old, new, engine = names[0], names[1], result.engine
        yield f"{engine}: release {new} replaced {old} while clients sent requests; a rollback returned to {old}."
    yield ""
    yield from _table(result)
    for failure in total.examples:
        yield f"lost: {failure.reason}: {failure.detail}"
    if seconds := result.seconds:
        parts = ", ".join(f"{title} {part:.0f} s" for title, part in seconds.items())
        yield f"\n{sum(seconds.values()):.0f} s: {parts}"
    for topic, commands in further.items():
        yield f"\n{topic}"
        yield from _commands(commands)


def _commands(commands: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield commands with their purpose beside them, that of a long one above it."""
    width = max((len(command) for command, _ in commands if len(command) <= BESIDE), default=0)
    for command, purpose in commands:
        if len(command) <= BESIDE:
            yield f"  {command:<{width}}  {purpose}".rstrip()
        else:
            yield from (f"  # {purpose}", f"  {command}")


def _table(result: DemoResult) -> Iterator[str]:
    """Yield the figures by part. A wait is a time in which no short request was answered."""
    width = max(map(len, result.parts))
    yield f"{'':<{width}}  requests  streams  lost  longest wait"
    for name, report in result.parts.items():
        sent, wait = report.shorts + report.streams, f"{report.longest_gap_s:.1f} s"
        yield f"{name:<{width}}  {sent:>8}  {report.streams:>7}  {report.lost:>4}  {wait:>12}"
