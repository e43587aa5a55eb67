"""Rules and their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sparkops.lint.dockerfile import StagedBuild


class Violation(NamedTuple):
    """A line that violates a rule: `problem` has the actual and the expected state, `fix` the text to write."""

    line: int
    problem: str
    fix: str


class LintFinding(NamedTuple):
    """A violation of a rule in a file. Findings sort by place."""

    file: str
    line: int
    rule: str
    problem: str
    fix: str


@dataclass(frozen=True)
class Rule:
    """A requirement and its reason. `check` checks a Dockerfile; check.py has the checks of recipes."""

    name: str
    reads: str
    requirement: str
    reason: str
    check: Callable[[StagedBuild], Iterable[Violation]] | None = None
