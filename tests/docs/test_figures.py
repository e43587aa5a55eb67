"""Every figure with a unit is generated, in docs/evidence, of a stated day and source, or a limit of the program.

Sample output needs none where its passage says "example"; no page states a measured figure otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

import pytest

from tests.docs.limits import LIMITS
from tests.docs.pages import PAGES, ROOT, Page

GENERATED = {
    "docs/doctor.md": "tests/doctor",
    "docs/inventory.md": "tests/test_docs.py",
    "docs/lint.md": "tests/lint",
    "docs/memory.md": "tests/memory",
    "docs/recipe.md": "tests/test_docs.py",
    "docs/status.md": "tests/test_docs.py",
    "docs/verbs.md": "tests/docs",
}
"""Pages that a program writes, and where a test compares them."""
UNIT = r"%|ms|s|min|minutes?|hours?|[KMG]iB|[KMGT]B|tok/s|answered|requests|connections"
FIGURE = re.compile(rf"(?<![\w.])\d[\d,.]*(?: min \d+)? ?(?:{UNIT})(?!\w)")
DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
SOURCE = re.compile(r"\]\(|`make |https://|\w#\d+")
EVIDENCE = re.compile(r"(?:docs/)?(evidence/[a-z\d][a-z\d.-]*\.md)")


def written_by_hand() -> list[Page]:
    """Return the pages that no program generates."""
    kept = ("CHANGELOG.md", "docs/evidence/")  # what was done on a day, and the sources themselves
    return [page for page in PAGES if page.name not in GENERATED and not page.name.startswith(kept)]


def unsourced(passages: Iterable[str], limits: Collection[str]) -> Iterator[str]:
    """Yield each figure that has no source."""
    for passage in passages:
        sourced = DAY.search(passage) and SOURCE.search(passage)
        if not (EVIDENCE.search(passage) or sourced or "example" in passage.lower()):
            yield from (figure for figure in FIGURE.findall(passage) if figure not in limits)


def value(figure: str) -> float:
    """Return a figure in its last unit."""
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,.]*", figure)]
    return numbers[0] * 60 + numbers[1] if len(numbers) > 1 else numbers[0]


@pytest.mark.parametrize("page", written_by_hand(), ids=lambda page: page.name)
def test_each_figure_has_its_source(page: Page) -> None:
    assert list(unsourced(page.passages(), LIMITS.get(page.name, {}))) == []


@pytest.mark.parametrize("page", written_by_hand(), ids=lambda page: page.name)
def test_a_figure_beside_a_link_to_evidence_is_in_it(page: Page) -> None:
    absent = []
    for passage in page.passages():
        files = set(EVIDENCE.findall(passage))
        texts = " ".join((ROOT / "docs" / file).read_text() for file in files)
        absent += [figure for figure in FIGURE.findall(passage) if files and figure not in texts]

    assert absent == []


@pytest.mark.parametrize(("page", "figure"), [(page, figure) for page in LIMITS for figure in LIMITS[page]])
def test_each_limit_is_that_of_the_program(page: str, figure: str) -> None:
    assert figure in Page(page).text
    assert value(figure) == LIMITS[page][figure]


def test_a_figure_without_a_source_is_found() -> None:
    passages = ["A swap takes 2.8 s.", "On 2026-11-22 it took 1.3 s (`make demo`).", "For 10 minutes."]

    assert list(unsourced(passages, ["10 minutes"])) == ["2.8 s"]


def test_what_is_called_generated_is_compared_somewhere() -> None:
    for page, where in GENERATED.items():
        tests = (ROOT / where).rglob("test_*.py") if (ROOT / where).is_dir() else [ROOT / where]
        name = page.removeprefix("docs/")
        stem = name.removesuffix(".md")
        assert any(name in text or f'"{stem}"' in text for text in (file.read_text() for file in tests)), page
