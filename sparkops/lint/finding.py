"""What a rule finds, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sparkops.lint.stages import StagedBuild


class Found(NamedTuple):
    """A place that breaks a rule: `problem` says what is wrong and what was expected, `fix` what to write."""

    line: int
    problem: str
    fix: str


class LintFinding(NamedTuple):
    """What was found in a file, by the rule of that name. Findings sort by place."""

    file: str
    line: int
    rule: str
    problem: str
    fix: str


@dataclass(frozen=True)
class Rule:
    """What is asked for, and why. `check` reads a Dockerfile; a rule without one is checked where its file is read."""

    name: str
    reads: str
    asks: str
    reason: str
    check: Callable[[StagedBuild], Iterable[Found]] | None = None
