"""A finding of the watch, as a guard reports it to `status` and `doctor`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineFinding:
    """What is wrong with an engine of a promoted release. The watch changes nothing; the leader may."""

    code: str
    """`STALLED`, `UNANSWERED`, `GARBAGE`, `RESTARTS`, `RANK_DOWN`, `SLOW`, `CLOCKS_LOW` or `LOW_MEMORY`."""
    service: str
    """Name of the service."""
    node: str
    """Name of the node."""
    container: str
    """Name of the container."""
    since: float
    """Unix time, by the node's clock, since which the finding holds."""
    detail: str
    """What is wrong, with measured values."""
    next_step: str
    """Next step."""


def read_findings(node: str, reported: object) -> Iterator[EngineFinding]:
    """Yield the findings in a guard's report, `reported`, as JSON, without those of another form."""
    for item in reported if isinstance(reported, list) else ():
        with suppress(KeyError, TypeError, ValueError):
            texts = {key: str(item[key]) for key in ("code", "service", "container", "detail", "next_step")}
            yield EngineFinding(node=node, since=float(item["since"]), **texts)
