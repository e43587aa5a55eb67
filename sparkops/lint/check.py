"""A file becomes findings. Everything is decided from text; the caller has read it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sparkops.lint.dockerfile import parse
from sparkops.lint.finding import LintFinding
from sparkops.lint.ignores import Ignore, of_dockerfile, settled
from sparkops.lint.rules.secret import hidden
from sparkops.lint.rules.table import RULES
from sparkops.lint.stages import build


@dataclass(frozen=True)
class Checked:
    """What was found in one file, before its ignores are heeded."""

    file: str
    findings: tuple[LintFinding, ...]
    ignores: tuple[Ignore, ...]


def check_dockerfile(text: str, file: str) -> Checked:
    """Every rule over a Dockerfile. `file` is what it is called in findings."""
    dockerfile = parse(text)
    built = build(dockerfile)
    findings = [
        LintFinding(file, slip.line, rule.name, hidden(slip.problem), hidden(slip.fix))
        for rule in RULES
        if rule.check
        for slip in rule.check(built)
    ]
    return Checked(file, tuple(findings), tuple(of_dockerfile(dockerfile, file)))


def findings(checked: Iterable[Checked], chosen: Collection[str]) -> list[LintFinding]:
    """What is left of all findings when the ignores are heeded: those of the `chosen` rules, ordered by place."""
    every = list(checked)
    return settled(
        [finding for checked in every for finding in checked.findings],
        [ignore for checked in every for ignore in checked.ignores],
        {checked.file for checked in every},
        chosen,
    )
