"""Findings in SARIF 2.1.0, which code hosts show beside the line.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from sparkops.lint.finding import LintFinding
from sparkops.lint.report import LintReport
from sparkops.lint.rules.table import NAMES, RULES

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_sarif(report: LintReport, version: str) -> dict[str, Any]:
    """One run of sparkops `version`, with all rules and a result for each finding."""
    driver = {"name": "sparkops lint", "version": version, "rules": [_rule(number) for number in range(len(RULES))]}
    run = {
        "tool": {"driver": driver},
        "invocations": [_invocation(report)],
        "results": [_result(each) for each in report.findings],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(number: int) -> dict[str, Any]:
    rule = RULES[number]
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.asks},
        "fullDescription": {"text": rule.reason},
        "defaultConfiguration": {"level": "error"},
    }


def _invocation(report: LintReport) -> dict[str, Any]:
    told = [{"level": "error", "message": {"text": each}} for each in report.unreadable]
    return {"executionSuccessful": not told, "toolExecutionNotifications": told}


def _result(finding: LintFinding) -> dict[str, Any]:
    place = {"artifactLocation": {"uri": quote(finding.file)}, "region": {"startLine": finding.line}}
    return {
        "ruleId": finding.rule,
        "ruleIndex": NAMES.index(finding.rule),
        "level": "error",
        "message": {"text": f"{finding.problem}\nFix: {finding.fix}"},
        "locations": [{"physicalLocation": place}],
    }
