"""Which green must end because its node runs out of memory, and how little is too little."""

from __future__ import annotations

import pytest

from sparkops.plan.journal import Journal, Mode, Phase, Swap
from sparkops.plan.relief import floor_gib, must_end
from tests.examples import recipe
from tests.plan.places import GATEWAY, placed

UP = (Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH, Phase.BAKE)


def ends(phase: Phase, available_gib: float, node: str = "n2", **swap: float) -> bool:
    made = recipe(swap=swap).model_dump(mode="json", exclude_none=True)
    green = placed("new", "green", "n2", recipe=made)
    swapped = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=green, phase=phase)
    return must_end(Journal(service="chat", swap=swapped), node, available_gib) == green.container


def test_a_green_must_end_from_its_start_to_its_promotion() -> None:
    assert {phase for phase in Phase if ends(phase, 0.0)} == set(UP)
    assert must_end(Journal(service="chat"), "n2", 0.0) is None


@pytest.mark.parametrize(
    ("available_gib", "reserve_gib", "ended"),
    [(3.9, 15.0, True), (4.0, 15.0, False), (4.9, 15.0, False), (0.9, 1.0, True), (1.0, 1.0, False), (0.0, 0.0, False)],
)
def test_4_gib_must_stay_available_or_what_the_recipe_keeps_back(
    available_gib: float, reserve_gib: float, ended: bool
) -> None:
    assert ends(Phase.LOAD, available_gib, reserve_gib=reserve_gib) is ended


def test_a_green_on_another_node_does_not_end() -> None:
    assert ends(Phase.LOAD, 0.0, "n1") is False


def test_a_recipe_cannot_ask_for_a_higher_floor() -> None:
    assert [floor_gib(recipe(swap={"reserve_gib": gib})) for gib in (1.0, 4.0, 15.0)] == [1.0, 4.0, 4.0]
