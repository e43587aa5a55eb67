"""How little memory of a node is too little."""

from __future__ import annotations

import pytest

from sparkops.serving.memory.relief import floor_gib


@pytest.mark.parametrize(("reserve_gib", "floor"), [(15.0, 4.0), (1.0, 1.0), (0.0, 0.0)])
def test_4_gib_must_stay_available_or_what_the_recipe_keeps_back(reserve_gib: float, floor: float) -> None:
    assert floor_gib(reserve_gib) == floor
