"""What HAProxy has counted for a slot, in all of its processes, from a gateway's reply to `show`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any

from sparkops.names import Slot, backend


@dataclass(frozen=True)
class Counts:
    """Counts since the oldest process began: a reload forgets."""

    workers: int
    """Processes of HAProxy: more than one after a reload, until the old one's requests have ended."""
    old_sessions: int
    """Requests under way in old processes."""
    requests: int
    errors: int
    """Connections that could not be made, and answers that broke off. A client that left is none."""
    answers_5xx: int
    """Answers of the engine itself with a status of 500 or more."""


def counts(shown: Any, slot: Slot, service: str = "chat") -> Counts:
    haproxy = shown["haproxy"] or {"processes": "", "statistics": {}}  # it is just starting
    words = [line.split() for line in haproxy["processes"].splitlines()]
    statistics = haproxy["statistics"]
    texts = [statistics[line[0]] for line in words if line[1:2] == ["worker"] and line[0] in statistics]
    workers = [_rows(text, backend(service, slot)) for text in texts]
    return Counts(
        workers=len(workers),
        old_sessions=sum(_sum(rows, "scur") for rows in workers[1:]),
        requests=sum(_sum(rows, "stot") for rows in workers),
        errors=sum(_sum(rows, "econ", "eresp") for rows in workers),
        answers_5xx=sum(_sum(rows, "hrsp_5xx", of_servers=True) for rows in workers),
    )


def _rows(text: str, name: str) -> list[dict[str, str]]:
    return [row for row in csv.DictReader(text.removeprefix("# ").splitlines()) if row["pxname"] == name]


def _sum(rows: list[dict[str, str]], *columns: str, of_servers: bool = False) -> int:
    chosen = [row for row in rows if (row["svname"] != "BACKEND") is of_servers]
    return sum(int(row[column] or 0) for row in chosen for column in columns)
