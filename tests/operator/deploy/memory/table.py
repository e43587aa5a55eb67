"""docs/memory.md and docs/evidence/memory.md: the texts here, with an example and the tables of all cases.

To write them:

python -m tests.operator.deploy.memory.table
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sparkops.operator.deploy.memory.report import lines
from tests.operator.deploy.memory.cases import Case, caches, sehyo, starts, weights
from tests.places import ROOT

PAGES = {"docs/memory.md": "memory.md", "docs/evidence/memory.md": "evidence.md"}
"""Each page with its text in this directory."""
HEAD = "| figure | predicted | measured | error | source | missing input |\n| --- | --- | --- | --- | --- | --- |"


def text(page: str) -> str:
    """Return a whole page."""
    groups = {"weights": weights(), "caches": caches(), "starts": starts()}
    tables = {name: "\n".join(_table(cases)) for name, cases in groups.items()}
    written = Path(__file__).parent / PAGES[page]
    return written.read_text().format(example="\n".join(lines(sehyo("spark-1"))), **tables)


def _table(cases: Iterable[Case]) -> Iterator[str]:
    yield HEAD
    for case in cases:
        predicted = _figure(case.predicted, case.unit)
        if case.most is not None:
            predicted = f"{case.predicted:.2f} to {_figure(case.most, case.unit)}"
        figures = (predicted, _figure(case.measured, case.unit))
        error = "-" if case.error is None else "in the range" if case.holds else f"{case.error:+.1%}"
        yield f"| {' | '.join((case.what, *figures, error, case.source, case.missing))} |"


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
    return f"{shown} {unit}".strip()


if __name__ == "__main__":
    for page in PAGES:
        (ROOT / page).write_text(text(page))
