"""What is compared of a run: all that does not depend on how long something took.

- Events are compared one by one: they are numbered, so none is missed. Only what the machine itself decides counts
  (`COMPARED`); texts are reduced to release, phase, result, and node and kind of a problem. The reason of a failure is
  the first problem that a node reported, so problems are compared here, and not in reports, which drop them soon.
- Reports are compared by container, and by boot record, since the order of changes of two of them is a matter of time.
  Of a container it counts whether its engine runs and whether its release has the traffic. LOADING is left out: it may
  end between two looks. ABSENT and STOPPED are one: a guard reports no container that the journal has forgotten.
- Equal values in a row are one value. What was seen while the gateway could not be read is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkops.swap.fleet_state import EngineState, GatewayView, Report
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment
from tests.swap.conformance.traces import Role

COMPARED = ("intent", "phase", "failure", "end", "trouble")
KINDS = {
    "checks": re.compile("failed its checks|smoke suite failed"),
    "start": re.compile(r"\bended$|did not start"),
    "answer": re.compile("does not answer"),
    "cancelled": re.compile("^cancelled$"),
}
"""Problems by kind. A text of no kind counts as it is, so that it differs from any other."""


@dataclass(frozen=True)
class Snapshot:
    """What a leader saw at one time: the reports by node, and the gateway."""

    reports: Mapping[str, Report]
    gateway: GatewayView | None


@dataclass(frozen=True)
class Naming:
    """Names of a run. `releases` and `nodes` are by the name that they have there."""

    releases: Mapping[str, Role]
    nodes: Mapping[str, str]
    containers: Mapping[str, tuple[str, Role]]
    """By container: the node of the trace, and its release."""

    @classmethod
    def of(cls, old: Deployment, new: Deployment, nodes: Mapping[str, str]) -> Naming:
        known = ((Role.OLD, old), (Role.NEW, new))
        containers = {rank.container: (nodes[rank.node], role) for role, item in known for rank in item.ranks}
        return cls({item.release: role for role, item in known}, nodes, containers)


@dataclass(frozen=True)
class Observed:
    """A run, as it is compared: events in order, and by what was watched its distinct values in order."""

    events: tuple[str, ...]
    tracks: Mapping[str, tuple[str, ...]]


@dataclass
class Recording:
    """Everything of a run that is compared, before it is reduced."""

    events: list[Mapping[str, Any]] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)

    def observed(self, names: Naming) -> Observed:
        events = (_event(event, names) for event in self.events if event["kind"] in COMPARED)
        values = [item for snapshot in self.snapshots for item in _values(snapshot, names)]
        tracks = {
            track: _distinct(value for name, value in values if name == track) for track in {name for name, _ in values}
        }
        return Observed(tuple(events), tracks)


def names_of(journals: Iterable[Journal], nodes: Mapping[str, str]) -> Naming:
    """The names of a run: the release that is active at first, and the one of its first swap."""
    known = list(journals)
    old = next(journal.active for journal in known if journal.active)
    new = next(journal.swap.target for journal in known if journal.swap)
    return Naming.of(old, new, nodes)


def _event(event: Mapping[str, Any], names: Naming) -> str:
    role = names.releases.get(event.get("release", ""), "none")
    match event["kind"]:
        case "phase":
            return f"{names.releases[event['text'].partition(':')[0]]}: {event['phase']}"
        case "failure":
            return f"failure: {_problem(event['text'].rpartition('; ')[0], names)}"
        case "end":
            return f"end: {event['result']}, {role}, exit {event['exit_code']}, {_problem(event.get('why', ''), names)}"
        case kind:
            return str(kind)


def _problem(why: str, names: Naming) -> str:
    node, separator, text = why.partition(": ")
    text = text if separator and node in names.nodes else why
    kind = next((kind for kind, pattern in KINDS.items() if pattern.search(text.splitlines()[0])), text) if text else ""
    return f"{names.nodes[node]} {kind}" if node in names.nodes else kind


def _values(snapshot: Snapshot, names: Naming) -> Iterator[tuple[str, str]]:
    if snapshot.gateway is None:
        return
    view = snapshot.gateway
    traffic = names.releases.get(view.slots.get(view.active, "")) if view.active else None
    for node, report in snapshot.reports.items():
        armed = names.containers.get(report.armed, ("", "nothing"))[1]
        yield f"{names.nodes[node]} boot record", str(armed)
        for container, (place, role) in names.containers.items():
            state = report.engine(container).state
            if place == names.nodes[node] and state is not EngineState.LOADING:
                runs = "runs" if state.running else "down"
                yield f"{place} {role}", f"{runs}, has the traffic" if role is traffic else runs


def _distinct(values: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for value in values:
        if not kept or kept[-1] != value:
            kept.append(value)
    return tuple(kept)


def differences(expected: Observed, observed: Observed) -> list[str]:
    """Each list of values that two runs do not share."""
    pairs = {"events": (expected.events, observed.events)}
    for track in sorted({*expected.tracks, *observed.tracks}):
        pairs[track] = (expected.tracks.get(track, ()), observed.tracks.get(track, ()))
    return [f"{name}: expected {first}, found {second}" for name, (first, second) in pairs.items() if first != second]
