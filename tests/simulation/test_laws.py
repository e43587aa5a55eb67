"""What the laws permit after two faults, and the nearest thing that each of them still forbids."""

from __future__ import annotations

from dataclasses import replace

from sparkops.names import Slot
from sparkops.swap.model import Answer, Phase
from tests.simulation.faults import faults
from tests.simulation.journal_laws import writing
from tests.simulation.story import Story
from tests.simulation.test_reproductions import active
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


def forgotten(story: Story, *mute: str, silent: str = "") -> bool:
    """Whether a promotion that ends now is one that no other guard knows of. `mute`: nodes whose Docker hangs."""
    world, leader = story.world, story.world.leader
    for node in mute:
        world = world.with_machine(replace(world.machine(node), mute=True))
    reports = tuple(report for report in leader.reports if report.node not in silent.split())
    wrongs = writing(world, replace(leader, reports=reports), leader.journal.advanced())
    return any(wrong.startswith("17:") for wrong in wrongs)


def test_a_promotion_waits_for_another_guard_s_copy_unless_every_one_is_silent() -> None:
    story = Story.of("in-place").until(Phase.PROMOTE)  # the orders have not been sent yet

    assert forgotten(story), "both guards can be reached"
    assert forgotten(story, "n2", "n3"), "both have just reported"
    assert forgotten(story, "n2", "n3", silent="n3"), "one has just reported"
    assert forgotten(story, "n2", silent="n2 n3"), "Docker replies to one of them, whose report is late"
    assert not forgotten(story, "n2", "n3", silent="n2 n3")
    story.fault("loss of n2")
    assert not forgotten(story, "n3", silent="n3")


def test_a_promotion_ends_beside_a_lost_node_and_one_whose_docker_hangs() -> None:
    story = Story.of("first").until(Phase.LOAD).fault("loss of n1").rebuild().until(Phase.SWITCH)
    story.fault("Docker on n3 hangs")

    assert active(story.settle()) == "b"
