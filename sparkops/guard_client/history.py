"""The past events of a service as a person reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]
"""One event as a guard keeps it."""
KEPT_BY_ALL = ("evidence", "restart")
"""Kinds of events that only the guard of the engine's node knows."""


def merge(leader: Iterable[Record], others: Iterable[Record]) -> list[Record]:
    """Join the leader's lasting events with what other guards saved or restarted, by time."""
    joined = [*leader, *(event for event in others if event.get("kind") in KEPT_BY_ALL)]
    return sorted((event for event in joined if event.get("lasting", True)), key=lambda event: event["at"])


def lines(event: Record) -> Iterator[str]:
    """Yield the lines of one event: time, kind and text; then where its evidence is."""
    first, *rest = str(event.get("text", "")).splitlines() or [""]
    node = f"{event['node']}: " if event.get("node") else ""
    yield f"{event['at']}  {event.get('kind', ''):<8} {node}{first}".rstrip()
    yield from (f"  {line}" for line in rest)
    yield from (f"  evidence: {where}" for where in event.get("evidence") or ())
