"""The past events of a service as a person reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Record = Mapping[str, Any]
"""One event as a guard recorded it; versions of sparkops record different keys."""


def merge(gateway: Iterable[Record], others: Iterable[Record]) -> list[Record]:
    """Join the events of the gateway's guard with those of other guards that saved evidence, by time."""
    return sorted([*gateway, *(event for event in others if event.get("evidence"))], key=lambda event: event["at"])


def lines(event: Record) -> list[str]:
    """Return the lines of one event: time, event, release and mode; then why, and where the evidence is."""
    head = f"{event['at']}  {event['event']:<12} {event.get('release', '')} {event.get('mode') or ''}".rstrip()
    why = str(event.get("why") or "").splitlines()
    if why and event.get("phase"):
        why[0] = f"phase {event['phase']}: {why[0]}"
    return [head, *_indented("why", why), *_indented("evidence", event.get("evidence") or ())]


def _indented(title: str, texts: Iterable[str]) -> list[str]:
    """Indent the texts by one level, the first one after its title."""
    return [f"  {title + ': ' if number == 0 else '  '}{text}" for number, text in enumerate(texts)]
