"""A notice as JSON for receivers. Pure."""

from __future__ import annotations

from typing import Any

from sparkops.swap.catalogue import CATALOGUE, Notice

SCHEMA = 1
MOST_TEXT = 1000
"""Most characters of a text: chat services refuse longer messages."""


def as_json(node: str, at: str, notice_id: str, notice: Notice) -> dict[str, Any]:
    """Return a notice of a node as receivers get it.

    `at`: UTC, such as 2026-11-26T15:00:00Z, by the clock of the node. `notice_id`: the same at each attempt.
    """
    return {
        "schema": SCHEMA,
        "id": notice_id,
        "node": node,
        "at": at,
        "code": notice.code.value,
        "state": notice.state.value,
        "severity": CATALOGUE[notice.code].severity.value,
        "service": notice.service or None,
        "subject": notice.subject,
        "text": _short(notice.text),
        "next_step": _short(notice.next_step),
    }


def _short(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"
