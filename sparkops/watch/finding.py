"""A finding of the watch, as a guard reports it to `status` and `doctor`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EngineFinding:
    """A warning about an engine of a promoted release. The watch changes nothing: the engine keeps its traffic."""

    code: str
    """`STALLED`, `UNANSWERED`, `GARBAGE`, `RESTARTS` or `RANK_DOWN`."""
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


def read_findings(node: str, reported: Sequence[Mapping[str, Any]]) -> Iterator[EngineFinding]:
    """Yield the findings in a guard's report. Unknown keys are those of a newer guard.

    Raises KeyError, TypeError and ValueError for another form.
    """
    for item in reported:
        texts = {key: str(item[key]) for key in ("code", "service", "container", "detail", "next_step")}
        yield EngineFinding(node=node, since=float(item["since"]), **texts)
