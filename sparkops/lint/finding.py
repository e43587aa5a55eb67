"""Rules, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sparkops.lint.stages import StagedBuild


class Violation(NamedTuple):
    """A line that breaks a rule: `problem` says what is wrong and what was expected, `fix` what to write."""

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
    """A requirement and its reason. `check` reads a Dockerfile; check.py checks the rules without one."""

    name: str
    reads: str
    asks: str
    reason: str
    check: Callable[[StagedBuild], Iterable[Violation]] | None = None
