"""A comment passes a finding over only with a reason, and only while there is one."""

from __future__ import annotations

import pytest

from sparkops.lint.check import check_dockerfile, findings
from sparkops.lint.rules.table import NAMES
from tests.lint.cases import SLIM

CLONE = "RUN git clone https://h/x"


def places(text: str, *rules: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.rule) for finding in findings([check_dockerfile(text, "f")], rules or NAMES)]


@pytest.mark.parametrize(
    "text",
    [
        f"{SLIM}\n# sparkops: ignore=git-pin no tags there\n{CLONE}",
        f"{SLIM}\n# sparkops: ignore=git-pin no tags there\n# and why\n\n{CLONE}",
        f"{SLIM}\n#sparkops:ignore=git-pin no tags there\n{CLONE}",
        f"{SLIM}\nRUN ls \\\n  # sparkops: ignore=git-pin no tags there\n  && git clone https://h/x",
        "# sparkops: ignore=latest it is ours\nFROM h/x",
        "# syntax=docker/dockerfile:1\n# sparkops: ignore=latest it is ours\nFROM h/x",
        f"{SLIM}\n# sparkops: ignore=git-pin,apt-lists both are ours\n{CLONE} && apt-get update",
    ],
)
def test_an_ignore_with_a_reason_covers_its_instruction(text: str) -> None:
    assert places(text) == []


def test_an_ignore_covers_no_other_instruction_and_no_other_rule() -> None:
    text = f"{SLIM}\n# sparkops: ignore=git-pin no tags\n{CLONE} && apt-get update\n{CLONE}"

    assert places(text) == [(3, "apt-lists"), (4, "git-pin")]


def test_an_ignore_without_a_reason_is_reported_and_has_no_effect() -> None:
    assert places(f"{SLIM}\n# sparkops: ignore=git-pin\n{CLONE}") == [(2, "ignore-reason"), (3, "git-pin")]


@pytest.mark.parametrize(
    "comment",
    [
        "ignore=git-pin long ago",
        "ignore=gti-pin a slip",
        "ignore=ignore-unused no",
        "ignore git-pin why",
        "ignore= why",
    ],
)
def test_an_ignore_without_a_finding_is_reported(comment: str) -> None:
    assert places(f"{SLIM}\n# sparkops: {comment}\nRUN ls") == [(2, "ignore-unused")]


def test_an_ignore_of_an_unknown_rule_names_the_nearest() -> None:
    (only,) = findings([check_dockerfile(f"{SLIM}\n# sparkops: ignore=gitpin x\nRUN ls", "f")], NAMES)

    assert only.problem == "unknown rule gitpin, did you mean git-pin?"


def test_an_ignore_at_the_end_covers_nothing() -> None:
    assert places(f"{SLIM}\n{CLONE}\n# sparkops: ignore=git-pin too late") == [(2, "git-pin"), (3, "ignore-unused")]


def test_an_ignore_of_a_rule_that_was_not_chosen_is_left_alone() -> None:
    text = f"{SLIM}\n# sparkops: ignore=git-pin no tags\nRUN ls"

    assert places(text, "latest", "ignore-unused") == []
    assert places(text, "git-pin") == []


def test_what_a_heredoc_holds_is_no_ignore() -> None:
    text = f"{SLIM}\nRUN <<EOF\n# sparkops: ignore=git-pin in a script\ngit clone https://h/x\nEOF"

    assert places(text) == [(4, "git-pin")]
