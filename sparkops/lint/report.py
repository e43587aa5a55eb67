"""Findings as text, and as one JSON object; the rules as a page to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparkops.lint.finding import LintFinding
from sparkops.lint.rules.table import RULES

HEAD = """\
# Lint

`sparkops lint` reads Dockerfiles, yours or ours, and recipes with the Dockerfiles that they make. It runs nothing and
asks no network. Each finding is `file:line: RULE: what is wrong, what was expected`, with a line that says what to
write; it ends with 1 if there is any, and with 2 if a file cannot be read.

Variables are followed as BuildKit hands them on: ENV and ARG of the stage itself and of a stage that it begins with,
nothing from an image, and an ARG before the first FROM only where the stage declares it again. Values are those in the
file; what a build argument or a command would give instead is not known, and is not held against the file. Branches of
an `if` that never run on a Spark with these values are left out: it is arm64, and `uname -m` prints aarch64.

A comment passes a finding over: in a Dockerfile for the instruction that it stands in or before, in a recipe for the
line that it ends or stands before, with all that is indented below:

    # sparkops: ignore=git-pin the tags of this repository have no versions

The reason is required, and an ignore that hits nothing is a finding itself. Several rules are written `ignore=a,b`.

Without arguments it reads the recipes that `sparkops recipes` lists and Dockerfiles/. In a directory it looks for
Dockerfile, Dockerfile.NAME, Dockerfile-NAME, Dockerfile_NAME, NAME.Dockerfile, the same with Containerfile, in upper or
lower case, and recipes; `-` is a Dockerfile on stdin. `--rule` and `--ignore`
choose rules by name. `--json` prints `files` (how many were read), `findings` (each with `file`, `line`, `rule`,
`problem` and `fix`) and `unreadable` (why, for each file); `--format sarif` prints SARIF 2.1.0.

## With hadolint

These rules are about CUDA, torch, vLLM and reproducible builds. Leave the rest to hadolint: shellcheck inside RUN,
`--no-install-recommends`, pinned versions of apt packages, `cd` instead of WORKDIR, sudo, USER root. Three rules
overlap; ignore those of hadolint: DL3006 and DL3007 (`latest`), DL3009 (`apt-lists`).

    hadolint --ignore DL3006 --ignore DL3007 --ignore DL3009 Dockerfile
    sparkops lint Dockerfile

For one report in CI let both write SARIF: `hadolint --format sarif` and `sparkops lint --format sarif`. Their ignores
do not meet: `# hadolint ignore=DL3013` and `# sparkops: ignore=RULE reason` are comments of one tool each.

| rule | reads | what it asks for | why |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class LintReport:
    """What was read and found. `unreadable` says of each file that could not be read why."""

    files: int
    findings: Sequence[LintFinding]
    unreadable: Sequence[str] = ()


def as_text(report: LintReport) -> str:
    """Two lines for each finding."""
    return "\n".join(
        f"{finding.file}:{finding.line}: {finding.rule}: {finding.problem}\n    fix: {finding.fix}"
        for finding in report.findings
    )


def as_json(report: LintReport) -> dict[str, Any]:
    """The same as data."""
    return {
        "files": report.files,
        "findings": [finding._asdict() for finding in report.findings],
        "unreadable": list(report.unreadable),
    }


def summary(report: LintReport) -> str:
    """One line for people."""
    files = f"{report.files} file{'' if report.files == 1 else 's'}"
    if not report.findings:
        return f"{files}: nothing found"
    places = len({finding.file for finding in report.findings})
    number = len(report.findings)
    return f"{number} finding{'' if number == 1 else 's'} in {places} of {files}"


def rules_page() -> str:
    """docs/lint.md."""
    return HEAD + "".join(f"| `{rule.name}` | {rule.reads} | {rule.asks} | {rule.reason} |\n" for rule in RULES)


def rules_json() -> dict[str, Any]:
    """The rules as data."""
    shown = ({"name": rule.name, "reads": rule.reads, "asks": rule.asks, "reason": rule.reason} for rule in RULES)
    return {"rules": list(shown)}
