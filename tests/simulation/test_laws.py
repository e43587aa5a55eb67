"""What the laws permit after two faults, and the nearest thing that each of them still forbids."""

from __future__ import annotations

from sparkops.names import Slot
from sparkops.swap.model import Answer, Phase
from tests.simulation.faults import faults
from tests.simulation.story import Story
from tests.simulation.views import Health


def test_nonsense_of_an_engine_out_of_reach_is_no_answer() -> None:
    story = Story.of("first").settle().become("b-r0", Health.WRONG)
    assert story.world.answers(Slot.BLUE) is Answer.YES

    story.fault("cut link to n2")

    assert story.world.answers(Slot.BLUE) is Answer.NO


def test_a_start_that_docker_would_refuse_has_not_happened_when_docker_hangs() -> None:
    story = Story.of("in-place").until(Phase.START)
    while story.world.machine("n2").pending != "b-r0":
        assert story.step()
    hangs = "Docker on n2 hangs: docker start b-r0"
    assert hangs in dict(faults(story.world))

    story.fault("Docker on n2 refuses to start")

    assert hangs not in dict(faults(story.world))
