"""Print findings as text, JSON or SARIF, and the rules as a page or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sparkops import __version__
from sparkops.lint.finding import LintFinding, Rule
from sparkops.lint.rules.table import NAMES, RULES

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

HEAD = """\
# Lint

`sparkops lint` checks Dockerfiles, and recipes with their rendered Dockerfiles. It runs nothing and uses no network.
Each finding is `file:line: RULE: problem, expected value`, followed by the fix. The exit code is 1 if there is a
finding, and 2 if a file cannot be read.

Variables resolve as in BuildKit: ENV and ARG of the stage and of its parent stages, nothing from an image, and an ARG
before the first FROM only if the stage declares it again. Values of build arguments and output of commands are unknown
and cause no finding. Branches of an `if` that never run on a Spark (arm64; `uname -m` prints aarch64) are skipped.

A comment ignores findings: in a Dockerfile it applies to the instruction containing or following it, in a recipe to
its line or the next one, with the indented lines below:

    # sparkops: ignore=git-pin the tags of this repository have no versions

The reason is required, and an ignore without a finding is itself a finding. Several rules: `ignore=a,b`.

Without arguments it checks Dockerfiles/ and the recipes that `sparkops recipes` lists; in a directory it checks recipes
and files named Dockerfile, Dockerfile.NAME, Dockerfile-NAME, Dockerfile_NAME, NAME.Dockerfile, or the same with
Containerfile, in upper or lower case; `-` is a Dockerfile on stdin. `--rule` and `--ignore` select rules.
`--json` prints `files` (the number of files), `findings` (each with `file`, `line`, `rule`, `problem` and `fix`) and
`unreadable` (the reason for each file); `--format sarif` prints SARIF 2.1.0.

## With hadolint

These rules are about CUDA, torch, vLLM and reproducible builds. Use hadolint for the rest: shellcheck inside RUN,
`--no-install-recommends`, pinned versions of apt packages, `cd` instead of WORKDIR, sudo, USER root. Three rules
overlap; ignore these of hadolint: DL3006 and DL3007 (`latest`), DL3009 (`apt-lists`).

    hadolint --ignore DL3006 --ignore DL3007 --ignore DL3009 Dockerfile
    sparkops lint Dockerfile

For one report in CI use SARIF: `hadolint --format sarif` and `sparkops lint --format sarif`. Each has its own
ignores: `# hadolint ignore=DL3013` and `# sparkops: ignore=RULE reason`.

| rule | reads | requirement | reason |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class LintReport:
    """Findings in `files` files. `unreadable`: the error of each file that could not be read."""

    files: int
    findings: Sequence[LintFinding]
    unreadable: Sequence[str] = ()


def as_text(report: LintReport) -> str:
    """Return two lines for each finding."""
    return "\n".join(
        f"{finding.file}:{finding.line}: {finding.rule}: {finding.problem}\n    fix: {finding.fix}"
        for finding in report.findings
    )


def as_json(report: LintReport) -> dict[str, Any]:
    """Return the report as data."""
    return {
        "files": report.files,
        "findings": [finding._asdict() for finding in report.findings],
        "unreadable": list(report.unreadable),
    }


def summary(report: LintReport) -> str:
    """Return the report in one line; without a file that was read, only that none was."""
    files, unread = _files(report.files), len(report.unreadable)
    also = f"; {_files(unread)} not read" if unread else ""
    if unread and not report.files:
        return f"{_files(unread)} not read"
    if not report.findings:
        return f"{files}: no findings{also}"
    places = len({finding.file for finding in report.findings})
    number = len(report.findings)
    return f"{number} finding{'' if number == 1 else 's'} in {places} of {files}{also}"


def _files(number: int) -> str:
    return f"{number} file{'' if number == 1 else 's'}"


def as_sarif(report: LintReport) -> dict[str, Any]:
    """Return the report in SARIF 2.1.0, which code hosts show at the line.

    https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
    """
    driver = {"name": "sparkops lint", "version": __version__, "rules": [_sarif_rule(rule) for rule in RULES]}
    errors = [{"level": "error", "message": {"text": reason}} for reason in report.unreadable]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not errors, "toolExecutionNotifications": errors}],
        "results": [_sarif_result(finding) for finding in report.findings],
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.requirement},
        "fullDescription": {"text": rule.reason},
        "defaultConfiguration": {"level": "error"},
    }


def _sarif_result(finding: LintFinding) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": quote(finding.file)}, "region": {"startLine": finding.line}}
    return {
        "ruleId": finding.rule,
        "ruleIndex": NAMES.index(finding.rule),
        "level": "error",
        "message": {"text": f"{finding.problem}\nFix: {finding.fix}"},
        "locations": [{"physicalLocation": place}],
    }


def rules_page() -> str:
    """Return docs/lint.md."""
    return HEAD + "".join(f"| `{rule.name}` | {rule.reads} | {rule.requirement} | {rule.reason} |\n" for rule in RULES)


def rules_json() -> dict[str, Any]:
    """Return the rules as data."""
    rows = [{"name": rule.name, "reads": rule.reads, "asks": rule.requirement, "reason": rule.reason} for rule in RULES]
    return {"rules": rows}
