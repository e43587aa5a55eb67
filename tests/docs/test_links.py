"""Every link leads to a file and heading that exist, or to an address that was looked at on a stated day."""

from __future__ import annotations

import re
from datetime import date

import pytest

from tests.docs.pages import DEFINED, LABEL, PAGES, Page
from tests.places import ROOT

DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
CHECKED = Page("docs/evidence/links.md")
ROW = re.compile(r"^\| <(https://\S+)> \| (\d{4}-\d\d-\d\d) \| \S.* \|$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_to_files_and_headings(page: Page) -> None:
    targets = [link for link in page.links() if "://" not in link]

    assert [target for target in targets if not leads_somewhere(page, target)] == []


def leads_somewhere(page: Page, target: str) -> bool:
    """Return whether a relative link has its file and its heading."""
    path, _, anchor = target.partition("#")
    file = (page.file.parent / path).resolve() if path else page.file
    return file.exists() and (not anchor or anchor in Page(str(file.relative_to(ROOT))).anchors())


def test_links_to_other_sites_are_encrypted_and_listed_with_the_day_of_their_check() -> None:
    outside = {link for page in PAGES if page != CHECKED for link in page.links() if "://" in link}
    rows = dict(ROW.findall(CHECKED.text))

    assert {link for link in outside if not link.startswith("https://")} == set()
    assert set(rows) == outside
    assert [day for day in rows.values() if date.fromisoformat(day) < date(2026, 11, 22)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_label_of_a_link_is_defined_and_used(page: Page) -> None:
    assert set(LABEL.findall(page.prose)) == set(DEFINED.findall(page.prose))


@pytest.mark.parametrize(("name", "least"), [("README.md", 15), ("docs/compare.md", 18)])
def test_each_cell_about_another_tool_links_to_its_source_or_is_unknown(name: str, least: int) -> None:
    _, _, comparison = Page(name).text.partition("# Comparison\n")
    header, _, *rows = [line for line in comparison.partition("\n## ")[0].splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in row.strip("|").split("|")[2:]]

    assert header.count("|") == 6
    assert len(cells) >= least
    assert [cell for cell in cells if cell != "unknown" and not LABEL.search(cell)] == []
    assert DAY.search(comparison.partition("|")[0])


def test_the_readme_compares_in_five_rows_which_the_page_does_not_repeat() -> None:
    _, _, comparison = Page("README.md").text.partition("## Comparison\n")
    rows = [line for line in comparison.splitlines() if line.startswith("|") and not line.startswith("| ---")]

    assert len(rows) == 1 + 5
    assert [row for row in rows[1:] if f"\n{row.split(' | ')[0]} |" in Page("docs/compare.md").text] == []


@pytest.mark.parametrize("target", ["docs/none.md", "docs/swap.md#none", "#none"])
def test_a_link_to_nothing_is_found(target: str) -> None:
    assert not leads_somewhere(Page("README.md"), target)
