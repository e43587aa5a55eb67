"""What a recipe's nodes lack, in words."""

from __future__ import annotations

import pytest

from sparkops.operator.deploy.provision import Missing
from tests.examples import recipe

ABSENT = "not found"


@pytest.mark.parametrize(
    ("due", "lines"),
    [
        (Missing(recipe(), []), []),
        (Missing(recipe(), [], {}, ["n1", "n2"]), []),
        (
            Missing(recipe(serve={"tensor_parallel": 2}), ["n1", "n2"]),
            ["image: build or copy to n1, n2"],
        ),
        (Missing(recipe(), ["n2"]), ["image: build or copy to n2"]),
        (Missing(recipe(), [], {"n2": ABSENT}, ["n1"]), ["weights: copy q from n1 to n2"]),
        (Missing(recipe(), [], {"n1": ABSENT}), ["weights: download org/q to n1"]),
        (
            Missing(recipe(), ["n1", "n2"], {"n1": ABSENT, "n2": ABSENT}),
            [
                "image: build or copy to n1, n2",
                "weights: download org/q to n1, then copy to n2",
                "more nodes than one release needs: the next one starts on another node; --node NODE limits it",
            ],
        ),
    ],
)
def test_each_missing_part_is_one_line(due: Missing, lines: list[str]) -> None:
    assert list(due) == lines
