"""Findings as text, JSON and SARIF, and the page of all rules."""

from __future__ import annotations

from pathlib import Path

from sparkops import __version__
from sparkops.lint.finding import LintFinding
from sparkops.lint.report import LintReport, as_json, as_sarif, as_text, rules_page, summary
from sparkops.lint.rules.table import NAMES, RULES

ONE = LintFinding("a b/Dockerfile", 3, "latest", "the image x has no tag, expected a version", "FROM x:VERSION")
TWO = LintFinding("recipes/q.yaml", 7, "secret", "it holds a key, expected none", "take it out")
REPORT = LintReport(4, [ONE, TWO])


def test_text_has_the_place_the_rule_and_the_problem_and_then_what_to_write() -> None:
    assert as_text(REPORT) == (
        "a b/Dockerfile:3: latest: the image x has no tag, expected a version\n"
        "    fix: FROM x:VERSION\n"
        "recipes/q.yaml:7: secret: it holds a key, expected none\n"
        "    fix: take it out"
    )


def test_json_has_the_same_as_data() -> None:
    assert as_json(LintReport(4, [TWO], ["x: is gone"])) == {
        "files": 4,
        "findings": [
            {
                "file": "recipes/q.yaml",
                "line": 7,
                "rule": "secret",
                "problem": "it holds a key, expected none",
                "fix": "take it out",
            }
        ],
        "unreadable": ["x: is gone"],
    }


def test_the_summary_counts() -> None:
    assert summary(REPORT) == "2 findings in 2 of 4 files"
    assert summary(LintReport(1, [ONE])) == "1 finding in 1 of 1 file"
    assert summary(LintReport(4, [])) == "4 files: no findings"
    assert summary(LintReport(4, [], ["x: is gone"])) == "4 files: no findings; 1 file not read"
    assert summary(LintReport(1, [ONE], ["x", "y"])) == "1 finding in 1 of 1 file; 2 files not read"
    assert summary(LintReport(0, [], ["x: is gone"])) == "1 file not read"


def test_sarif_has_a_result_with_a_place_for_each_finding() -> None:
    log = as_sarif(REPORT)
    (run,) = log["runs"]

    assert (log["version"], run["tool"]["driver"]["name"], run["tool"]["driver"]["version"]) == (
        "2.1.0",
        "sparkops lint",
        __version__,
    )
    assert run["results"][0] == {
        "ruleId": "latest",
        "ruleIndex": NAMES.index("latest"),
        "level": "error",
        "message": {"text": "the image x has no tag, expected a version\nFix: FROM x:VERSION"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "a%20b/Dockerfile"},
                    "region": {"startLine": 3},
                }
            }
        ],
    }
    assert [run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] for result in run["results"]] == [
        "latest",
        "secret",
    ]


def test_sarif_describes_every_rule_and_what_could_not_be_read() -> None:
    (run,) = as_sarif(LintReport(0, [], ["x: is gone"]))["runs"]

    assert [(rule["id"], rule["fullDescription"]["text"]) for rule in run["tool"]["driver"]["rules"]] == [
        (rule.name, rule.reason) for rule in RULES
    ]
    assert run["invocations"] == [
        {
            "executionSuccessful": False,
            "toolExecutionNotifications": [{"level": "error", "message": {"text": "x: is gone"}}],
        }
    ]
    assert as_sarif(REPORT)["runs"][0]["invocations"][0]["executionSuccessful"]


def test_the_page_of_rules_is_as_the_table_says() -> None:
    """If not: sparkops lint --rules > docs/lint.md."""
    assert (Path(__file__).parents[2] / "docs/lint.md").read_text() == rules_page()


def test_each_rule_has_a_name_of_its_own_and_whole_sentences() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert [rule.name for rule in RULES if not (rule.requirement.endswith(".") and rule.reason.endswith("."))] == []
    assert [rule.name for rule in RULES if "|" in rule.requirement + rule.reason] == []
