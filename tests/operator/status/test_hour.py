"""The last hour as guards report it: their clocks, guards of another version, and guards that do not reply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from sparkops.operator.status.hour import HourReader, read_hour
from sparkops.serving.watch.minutes import MOST_SERVICES, Minute


def reply(now: float, *samples: Minute, service: str = "chat") -> dict[str, Any]:
    return {"now": now, "services": {service: [*map(asdict, samples)]}}


@pytest.mark.parametrize(("clock_s", "minute"), [(0.0, 100), (29.0, 100), (-29.0, 100), (600.0, 90), (-61.0, 101)])
def test_minutes_are_those_of_this_machine(clock_s: float, minute: int) -> None:
    hour = read_hour(reply(6000.0 + clock_s, Minute(minute=100, tok_s=1.0)), 6000.0)

    assert hour == {"chat": [Minute(minute=minute, tok_s=1.0)]}


def test_a_reply_names_no_more_services_than_a_guard_keeps() -> None:
    assert len(read_hour({"now": 0.0, "services": {str(number): [] for number in range(999)}}, 0.0)) == MOST_SERVICES


def test_samples_of_another_time_than_the_last_hour_are_left_out() -> None:
    """Those of one guard would else take the place of all others'."""
    samples = [Minute(minute=minute) for minute in (0, 40, 41, 100, 101, 102, 10**9)]

    assert [one.minute for one in read_hour(reply(6000.0, *samples), 6000.0)["chat"]] == [41, 100, 101]


@pytest.mark.parametrize(
    "reported", [None, [], {"now": "x", "services": {}}, {"now": 0.0}, {"now": 0.0, "services": 3}]
)
def test_a_reply_of_another_form_is_an_error_of_its_node_alone(reported: Any) -> None:
    with pytest.raises((TypeError, ValueError, KeyError)):
        read_hour(reported, 0.0)


@dataclass
class Stream:
    """The stream to a guard, which replies with the next of `lines`; without any it ends."""

    lines: list[str]

    def settimeout(self, _: float) -> None: ...

    def sendall(self, _: bytes) -> None: ...

    def makefile(self, _: str) -> Stream:
        return self

    def readline(self, _: int) -> str:
        return self.lines.pop(0) if self.lines else ""

    def close(self) -> None: ...


@dataclass
class GuardNode:
    """A node whose guard replies with `lines`, over one connection."""

    name: str
    lines: list[str] = field(default_factory=list)
    cancel: Any = None

    def pipe(self, _: Any) -> Stream:
        return Stream(self.lines)


def line(value: Mapping[str, Any]) -> str:
    return json.dumps(value) + "\n"


def test_a_guard_without_samples_or_a_reply_hides_nothing_of_the_others() -> None:
    sample = Minute(minute=100, tok_s=2.0)
    nodes: Any = {
        "n1": GuardNode("n1", [line({"ok": reply(6000.0, sample)})]),
        "n2": GuardNode("n2", [line({"ok": reply(6000.0, sample)})] * 2),
        "old": GuardNode("old", [line({"error": "unknown request: 'minutes'"})] * 2),
        "wrong": GuardNode("wrong", [line({"ok": 5})] * 2),
    }
    reader = HourReader(lambda: nodes, now=lambda: 6000.0)

    assert reader.read() == {"chat": [Minute(minute=100, tok_s=4.0)]}
    assert reader.read() == {"chat": [Minute(minute=100, tok_s=4.0)]}, "n1 has ended, and keeps its last samples"
