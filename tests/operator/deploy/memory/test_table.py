"""The pages about memory show what the planner predicts now, and every prediction that is off names what is missing."""

from __future__ import annotations

import pytest

from tests.operator.deploy.memory import table
from tests.operator.deploy.memory.cases import FITTED, Case, caches, starts, weights
from tests.places import ROOT

CASES = [*weights(), *caches(), *starts()]
GOAL = 0.10


@pytest.mark.parametrize("page", table.PAGES)
def test_each_page_is_what_the_planner_predicts(page: str) -> None:
    """If not: python -m tests.operator.deploy.memory.table."""
    assert (ROOT / page).read_text() == table.text(page)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_a_prediction_is_near_or_names_the_missing_input(case: Case) -> None:
    near = case.holds or (case.error is not None and abs(case.error) < GOAL)

    assert near or case.missing not in ("", FITTED)


def test_most_predictions_are_near() -> None:
    off = [case.what for case in CASES if not case.holds and (case.error is None or abs(case.error) >= GOAL)]

    assert off == [
        "122B NVFP4 txn545, loaded",
        "Qwen3-30B NVFP4",
        "122B AutoRound, 44.9 GiB: requests of 262,144",
        "122B hybrid v2 TurboQuant: tokens",
    ]


def test_whole_starts_are_also_predicted_where_nothing_was_fitted() -> None:
    free = [case for case in starts() if not case.missing]

    assert len(free) == 12
    assert all(case.holds or abs(case.error or 1) < GOAL for case in free)
