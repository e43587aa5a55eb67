"""Swaps into which something breaks, and which of them every run of the tests tries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from sparkops.swap.model import Mode, Phase


@dataclass(frozen=True)
class Moment:
    """When a phase is written down, in a swap in a mode from blue on a node."""

    mode: Mode
    phase: Phase
    blue: str = "node-2"

    @property
    def argv(self) -> tuple[str, ...]:
        """Of the deploy."""
        other = "node-1" if self.blue == "node-2" else "node-2"
        downtime = ("--allow-downtime",) if self.mode is Mode.IN_PLACE else ()
        return ("--mode", self.mode, *downtime, "--node", other if self.mode is Mode.ACROSS else self.blue)

    @property
    def decided(self) -> str | None:
        """Who must serve in the end where nobody comes back to the deploy; None: either."""
        if self.phase.order < Phase.SWITCH.order:
            return "blue"
        return "green" if self.phase.order >= Phase.PROMOTE.order else None

    def __str__(self) -> str:
        return f"{self.mode}, {self.phase}, blue on {self.blue}"


def some(every: Iterable[object], *chosen: object) -> list[object]:
    """All cases; those that are not chosen are of the matrix."""
    cases = [*every]
    assert set(chosen) <= set(cases)
    marked = [pytest.param(case, marks=() if case in chosen else pytest.mark.matrix, id=str(case)) for case in cases]
    return [*marked]
