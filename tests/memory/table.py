"""docs/memory.md: the text of tests/memory/memory.md with the tables of all cases. To write it anew:

python -m tests.memory.table > docs/memory.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from sparkops.memory.report import lines
from tests.memory.cases import Case, caches, sehyo, starts, weights

TEXT = Path(__file__).parent / "memory.md"
HEAD = "| figure | predicted | measured | error | source | missing input |\n| --- | --- | --- | --- | --- | --- |"


def text() -> str:
    """The whole document."""
    groups = {"weights": weights(), "caches": caches(), "starts": starts()}
    tables = {name: "\n".join(_table(cases)) for name, cases in groups.items()}
    return TEXT.read_text().format(example="\n".join(lines(sehyo("spark-1"))), **tables)


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
    print(text(), end="")
