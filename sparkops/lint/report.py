"""Findings as text, and as one JSON object; the rules as a page to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparkops.lint.finding import Finding
from sparkops.lint.rules.table import RULES

HEAD = """\
# Lint

`sparkops lint` reads Dockerfiles, yours or ours, and recipes with the Dockerfiles that they make. It runs nothing and
asks no network. Each finding is `file:line: RULE: what is wrong, what was expected`, with a line that says what to
write; it ends with 1 if there is any, and with 2 if a file cannot be read.

Variables are followed as BuildKit hands them on: ENV and ARG of the stage itself and of a stage that it begins with,
nothing from an image, and an ARG before the first FROM only where the stage declares it again. Values are those in the
file; what a build argument or a command would give instead is not known, and is not held against the file.

A comment passes a finding over: in a Dockerfile for the instruction that it stands in or before, in a recipe for the
line that it ends or stands before, with all that is indented below:

    # sparkops: ignore=git-pin the tags of this repository have no versions

The reason is required, and an ignore that hits nothing is a finding itself. Several rules are written `ignore=a,b`.

Without arguments it reads the recipes that `sparkops recipes` lists and Dockerfiles/. In a directory it looks for
Dockerfile, Dockerfile.*, *.Dockerfile, Containerfile and recipes; `-` is a Dockerfile on stdin. `--rule` and `--ignore`
choose rules by name. `--json` prints `files` (how many were read), `findings` (each with `file`, `line`, `rule`,
`problem` and `fix`) and `unreadable` (why, for each file); `--format sarif` prints SARIF 2.1.0.

| rule | reads | what it asks for | why |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Report:
    """What was read and found. `unreadable` says of each file that could not be read why."""

    files: int
    findings: Sequence[Finding]
    unreadable: Sequence[str] = ()


def as_text(report: Report) -> str:
    """Two lines for each finding."""
    return "\n".join(
        f"{each.file}:{each.line}: {each.rule}: {each.problem}\n    fix: {each.fix}" for each in report.findings
    )


def as_json(report: Report) -> dict[str, Any]:
    """The same as data."""
    return {
        "files": report.files,
        "findings": [each._asdict() for each in report.findings],
        "unreadable": list(report.unreadable),
    }


def summary(report: Report) -> str:
    """One line for people."""
    files = f"{report.files} file{'' if report.files == 1 else 's'}"
    if not report.findings:
        return f"{files}: nothing found"
    places = len({each.file for each in report.findings})
    number = len(report.findings)
    return f"{number} finding{'' if number == 1 else 's'} in {places} of {files}"


def rules_page() -> str:
    """docs/lint.md."""
    return HEAD + "".join(f"| `{each.name}` | {each.reads} | {each.asks} | {each.reason} |\n" for each in RULES)


def rules_json() -> dict[str, Any]:
    """The rules as data."""
    shown = ({"name": each.name, "reads": each.reads, "asks": each.asks, "reason": each.reason} for each in RULES)
    return {"rules": list(shown)}
