"""What the laws permit after two faults, and the nearest thing that each of them still forbids."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import SwitchTraffic
from sparkops.swap.journal import present
from sparkops.swap.model import Answer, Phase
from tests.swap.simulation import laws
from tests.swap.simulation.faults import faults
from tests.swap.simulation.journal_laws import writing
from tests.swap.simulation.story import Story
from tests.swap.simulation.test_reproductions import active
from tests.swap.simulation.views import Health


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


def switching(story: Story) -> list[str]:
    """What law 6 finds wrong if the release of the swap, or else the active one, gets the traffic now."""
    journal, leader = story.journal, story.world.leader
    to = journal.swap.target if journal.swap else present(journal.active)
    wrongs = laws.leading(story.world, leader, SwitchTraffic(to)).wrongs
    return [wrong for wrong in wrongs if wrong.startswith("6:")]


def rebuilt(story: Story) -> Story:
    """Lose the gateway's node once the other guards know the journal, and run until the new one has b in its slot."""
    story.copied().fault("loss of n1").rebuild()
    while not story.world.gateway.site(Slot.GREEN)[0]:
        assert story.step()
    assert story.world.gateway.active is None
    return story


DOWN = "6: b gets requests and does not answer"


def test_a_rebuilt_gateway_gives_a_promoted_release_its_requests_back_although_it_answers_nonsense() -> None:
    story = Story.of("in-place").settle().fault("b-r0 is wrong").fault("loss of n1").rebuild().settle()

    assert (story.world.gateway.traffic, story.journal.trouble) == ("b", "b answers garbage: garbled")


@pytest.mark.parametrize("health", [Health.HUNG, Health.STOPPED, Health.LOADING])
def test_a_rebuilt_gateway_gives_no_requests_to_a_release_that_answers_nothing(health: Health) -> None:
    story = rebuilt(Story.of("in-place").settle()).become("b-r0", health)

    assert switching(story) == [DOWN]


def test_only_a_rebuilt_gateway_gives_requests_to_a_release_that_answers_nonsense() -> None:
    story = Story.of("in-place").settle().fault("b-r0 is wrong")
    assert switching(story) == [DOWN]

    story.fault("n1 cannot read its journal").rebuild()

    assert switching(story) == [DOWN], "it has kept its state"


def test_a_release_that_bakes_gets_no_requests_back_while_another_program_answers_on_its_port() -> None:
    story = rebuilt(Story.of("in-place").until(Phase.BAKE)).fault("the port of b-r0 is taken")

    assert switching(story) == [DOWN]


def test_a_release_gets_no_requests_back_that_is_reported_to_answer_nonsense_beside_one_that_answers() -> None:
    story = rebuilt(Story.of("across").until(Phase.RETIRE)).fault("b-r0 is wrong")
    assert switching(story) == [], "no guard has reported it"

    leader = story.world.leader
    engines = {report.node: report.engine("b-r0") for report in leader.reports}
    reports = tuple(
        replace(report, engines=(replace(engines["n3"], garbled="garbled"),)) if report.node == "n3" else report
        for report in leader.reports
    )
    story.world = story.world.with_leader(replace(leader, reports=reports))

    assert switching(story) == [DOWN]
    assert switching(story.become("a-r0", Health.HUNG)) == [], "no release answers"


def settled(story: Story) -> list[str]:
    """What is wrong if nothing more happens."""
    return laws.settled(story.world)


def silent(story: Story) -> Story:
    """Docker on n2 hangs, and its guard does not report any more."""
    story.fault("Docker on n2 hangs")
    while any(report.node == "n2" for report in story.world.leader.reports):
        assert story.step()
    return story


def test_nonsense_is_seen_once_docker_replies_to_the_guard_that_watches() -> None:
    story = silent(Story.of("first").settle().fault("b-r0 is wrong"))
    assert settled(story) == []

    assert story.settle().journal.trouble == "b answers garbage: garbled"


def test_what_the_gateway_or_a_watch_would_find_must_not_stay_unseen() -> None:
    unseen = "8: b has the traffic and does not answer"
    wrong = Story.of("first").settle().fault("b-r0 is wrong")
    hung = silent(Story.of("first").settle().fault("b-r0 is hung"))
    elsewhere = Story.of("first").settle().fault("b-r0 is wrong").fault("Docker on n3 hangs")

    assert [settled(story) for story in (wrong, hung, elsewhere)] == [[unseen]] * 3


def test_an_operator_is_needed_until_the_nonsense_ends() -> None:
    story = Story.of("first").settle().fault("b-r0 is wrong").settle()
    leader, needed, recovered = story.world.leader, story.journal.changed(), story.journal.changed(trouble="")
    assert story.journal.trouble == "b answers garbage: garbled"

    assert [*writing(story.world, leader, recovered)] == ["8: b answers nonsense, and no operator is needed any more"]
    assert [*writing(story.world, leader, needed)] == []
    assert [*writing(story.world, leader, story.journal.changed(trouble="", stopping=True))] == []
    assert [*writing(story.become("b-r0", Health.GOOD).world, leader, recovered)] == []


def killed(story: Story, container: str) -> list[str]:
    """What is wrong with the end of this container for memory."""
    machine = next(machine for machine, engine in story.world.engines() if engine.container == container)
    return [*laws.relieving(story.world, machine, container).wrongs]


def test_a_rank_of_a_replica_that_restarts_may_end_for_memory_and_one_that_serves_may_not() -> None:
    wrong = ["5: b-r1 is promoted, has the traffic, and is killed for memory"]
    story = Story.of("pair in-place").settle()
    assert killed(story, "b-r1") == wrong

    story.fault("b-r0 is stopped")
    assert killed(story, "b-r1") == wrong, "its leader has not begun to restart it"
    story.until(Phase.QUIESCE).step()

    assert killed(story, "b-r1") == []
    assert killed(story.become("b-r0", Health.GOOD), "b-r1") == wrong
    assert story.become("b-r0", Health.STOPPED).fault("memory of n3 runs out: b-r1 is killed").settle().running == [
        "b-r0",
        "b-r1",
    ]
