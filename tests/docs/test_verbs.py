"""docs/verbs.md is what the program prints of itself; the pages for users stay short."""

from __future__ import annotations

import pytest

from sparkops.cli.verbs import VERBS
from tests.docs.pages import Page
from tests.docs.verbs import page

USERS = ["first-spark", "second-spark", "update-model", "update-vllm", "trouble"]


def test_the_page_of_verbs_is_current() -> None:
    """If not: python -m tests.docs.verbs > docs/verbs.md."""
    assert Page("docs/verbs.md").text == page()


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_its_heading(verb: str) -> None:
    assert f"\n### {verb}" in Page("docs/verbs.md").text


@pytest.mark.parametrize("name", USERS)
def test_a_page_for_users_takes_a_few_minutes_and_is_linked_from_the_readme(name: str) -> None:
    assert len(Page(f"docs/{name}.md").text.splitlines()) <= 80
    assert f"(docs/{name}.md)" in Page("README.md").text


def test_the_readme_takes_ten_minutes() -> None:
    assert len(Page("README.md").text.splitlines()) <= 150
