"""What the laws permit after two faults, and the nearest thing that each of them still forbids."""

from __future__ import annotations

from sparkops.names import Slot
from sparkops.swap.model import Answer
from tests.simulation.story import Story
from tests.simulation.views import Health


def test_nonsense_of_an_engine_out_of_reach_is_no_answer() -> None:
    story = Story.of("first").settle().become("b-r0", Health.WRONG)
    assert story.world.answers(Slot.BLUE) is Answer.YES

    story.fault("cut link to n2")

    assert story.world.answers(Slot.BLUE) is Answer.NO
