"""docs/verbs.md is what the program prints of itself; the README links the pages for users."""

from __future__ import annotations

import pytest

from sparkops.operator.cli.described import FILE
from sparkops.operator.cli.verbs import VERBS
from tests.docs.help_file import text
from tests.docs.pages import Page
from tests.docs.verbs import page

USERS = ["first-spark", "second-spark", "update-model", "update-vllm", "trouble", "migrate", "on-my-spark"]


def test_the_page_of_verbs_is_current() -> None:
    """If not: python -m tests.docs.verbs > docs/verbs.md."""
    assert Page("docs/verbs.md").text == page()


def test_the_file_of_the_help_is_current() -> None:
    """If not: python -m tests.docs.help_file > sparkops/operator/cli/help.json."""
    assert FILE.read_text(encoding="utf-8") == text()


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_its_heading(verb: str) -> None:
    assert f"\n### {verb}" in Page("docs/verbs.md").text


@pytest.mark.parametrize("name", USERS)
def test_a_page_for_users_is_linked_from_the_readme(name: str) -> None:
    assert f"(docs/{name}.md)" in Page("README.md").text
