"""The faults of the first design, each as a scenario with the right end. Names are those of the reproductions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.intents import Cancel, Deploy, Hold, NothingToDo, Promote, Refused, Stop, changing
from sparkops.swap.journal import Journal
from sparkops.swap.leader import needs_operator, step
from sparkops.swap.model import PHASES, Answer, Mode, Phase
from sparkops.swap.rebuild import rebuilt
from tests.swap.simulation.explore import explore
from tests.swap.simulation.scenarios import deployment
from tests.swap.simulation.story import C, Story
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import NODES

ALONE = [phase for phase in PHASES[Mode.ACROSS][1:] if phase is not Phase.WORKERS]  # single ranks have no workers


def active(story: Story) -> str:
    """The release that is promoted and has the traffic."""
    assert story.journal.active is not None
    assert story.world.gateway.traffic == story.journal.active.release
    return story.journal.active.release


def back(story: Story, mode: Mode) -> Callable[[str, int], Deploy]:
    """The intent of a rollback to the previous release."""
    previous = story.journal.previous
    assert previous is not None
    return lambda name, revision: Deploy(name, revision, previous, mode)


def test_p1_an_intent_that_was_planned_before_a_commit_is_refused() -> None:
    story = Story.of("beside").until(Phase.LOAD)
    planned = Cancel("late", story.journal.revision)
    story.until(Phase.RETIRE)

    reply = story.reply(planned)

    assert isinstance(reply, Refused)
    assert "plan again" in reply.why
    assert active(story.settle()) == "b"


@pytest.mark.local
@pytest.mark.parametrize("mode", ["beside", "across"])
def test_p2_a_rollback_to_a_warm_release_survives_a_crash_at_any_point(mode: str) -> None:
    story = Story.of(mode).until(Phase.RETIRE)
    assert story.ask(back(story, Mode(mode)))

    explored = explore(story.world, faults_=1, intents=0)

    assert explored.states > 1000
    assert active(story.settle()) == "a"
    assert story.armed == ["a-r0"]


def test_p2b_a_guard_that_fails_while_it_arms_arms_afterwards() -> None:
    story = Story.of("beside").until(Phase.RETIRE)
    assert story.ask(back(story, Mode.BESIDE))
    story.until(Phase.PROMOTE).fault("crash of the guard on n2").settle()

    assert (active(story), story.armed, story.running) == ("a", ["a-r0"], ["a-r0"])


def test_p18_a_rollback_planned_on_a_warm_release_that_has_been_retired_is_refused() -> None:
    story = Story.of("beside").until(Phase.RETIRE)
    planned = back(story, Mode.BESIDE)("late", story.journal.revision)
    story.settle()

    assert isinstance(story.reply(planned), Refused)
    assert story.ask(back(story, Mode.BESIDE))
    assert active(story.settle()) == "a"


@pytest.mark.parametrize("phase", ALONE)
def test_p3_the_old_release_s_node_dies_and_the_new_release_serves(phase: Phase) -> None:
    story = Story.of("across").until(phase).fault("loss of n2").settle()

    assert (active(story), story.running, story.journal.trouble) == ("b", ["b-r0"], "")


def test_p3c_after_a_lost_node_the_next_deploy_and_the_next_rollback_are_accepted() -> None:
    story = Story.of("across").until(Phase.BAKE).fault("loss of n2").settle()

    assert story.deploy(Mode.IN_PLACE, "n3", without=frozenset({"n2"}))
    assert active(story.settle()) == "c"
    assert story.ask(back(story, Mode.IN_PLACE))
    assert active(story.settle()) == "b"
    assert [rank.container for rank in story.journal.stopped] == ["a-r0"], "it stays down if its node returns"


@pytest.mark.parametrize(("phase", "fault"), [(Phase.LOAD, "cut link to n2"), (Phase.BAKE, "HAProxy stalls")])
def test_p4_one_lost_read_costs_nothing(phase: Phase, fault: str) -> None:
    assert active(Story.of("in-place").until(phase).fault(fault).settle()) == "b"


def test_p5_a_drain_that_cannot_be_seen_does_not_end() -> None:
    story = Story.of("beside").until(Phase.DRAIN).fault("HAProxy stalls")
    while story.journal.swap and story.world.gateway.stalled:
        assert story.journal.swap.phase is Phase.DRAIN
        assert story.step()

    assert active(story.settle()) == "b"


@pytest.mark.parametrize("mode", ["in-place", "across"])
def test_p6_gateway_and_guards_change_only_while_no_service_does(mode: str) -> None:
    """Each of them is away for a moment as it is replaced."""
    story = Story.of(mode)
    while story.journal.swap and story.journal.swap.phase is not Phase.RETIRE:
        assert changing(story.journal).startswith("chat: a swap to b is in phase")
        assert story.step()
    assert changing(story.journal) == ""
    starts = story.world.starts

    story.fault("HAProxy stalls")
    for node in NODES:
        story.fault(f"crash of the guard on {node}")

    assert explore(story.world, faults_=1, intents=0).ends
    assert (active(story.settle()), story.world.starts) == ("b", starts)


def test_p6_neither_during_a_return_nor_during_a_stop() -> None:
    returning = Story.of("beside").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.RETIRE)
    stopping = Story.of("beside").settle().operator("stop")

    assert [changing(story.journal) for story in (returning, stopping)] == [
        "chat: a swap to a is in phase 'retire'",
        "chat is being stopped",
    ]
    assert changing(stopping.settle().journal) == ""


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.LOAD, Phase.VERIFY])
def test_p7_a_hold_stops_what_has_not_switched(phase: Phase) -> None:
    story = Story.of("beside").until(phase).operator("hold").settle()

    assert (active(story), story.running, story.journal.hold) == ("a", ["a-r0"], "exam")


def test_p7b_on_hold_nothing_begins_and_what_has_switched_ends() -> None:
    story = Story.of("beside").until(Phase.BAKE).operator("hold").settle()

    assert active(story) == "b"
    assert not story.deploy(Mode.IN_PLACE, "n2")
    assert isinstance(story.reply(Hold("free", story.journal.revision, "")), type(story.journal))


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.VERIFY, Phase.BAKE])
def test_p8_a_new_release_that_dies_is_replaced_by_the_old_one_without_any_client(phase: Phase) -> None:
    story = Story.of("in-place").until(phase)
    while "b-r0" not in story.running:
        assert story.step()
    story.fault("b-r0 is stopped").settle()

    assert (active(story), story.running, story.armed) == ("a", ["a-r0"], ["a-r0"])


@pytest.mark.parametrize("turns", ["wrong", "hung", "loading"])
def test_p8b_a_new_release_that_never_works_is_replaced_by_the_old_one(turns: str) -> None:
    assert active(Story.of("in-place", turns=turns).settle()) == "a"


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.VERIFY, Phase.BAKE])
def test_p9_a_new_release_that_leaves_too_little_memory_ends_and_the_old_one_returns(phase: Phase) -> None:
    story = Story.of("in-place").until(phase)
    while "b-r0" not in story.running:
        assert story.step()

    assert story.relieve("n2") == "b-r0"
    assert (active(story.settle()), story.running) == ("a", ["a-r0"])
    assert story.journal.trouble == ""


def test_p30_memory_relief_ends_the_new_release_of_two_and_never_what_is_promoted() -> None:
    two = Story.of("beside", automatic=False).until(Phase.BAKE)
    returning = Story.of("beside").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.SWITCH)
    promoted = Story.of("in-place").until(Phase.PROMOTE)
    assert returning.step(), "the guard receives the order"
    assert promoted.step(), "the guard receives the order"
    alone = Story.of("in-place").settle()

    assert [story.relieve("n2") for story in (two, returning, promoted, alone)] == ["b-r0", "b-r0", "", ""]
    assert [active(story.settle()) for story in (two, returning, promoted, alone)] == ["a", "a", "b", "b"]


def test_p12_a_full_disk_refuses_the_new_release_and_never_the_way_back() -> None:
    refused = Story.of("in-place").fault("full disk on n2").settle()
    failed = Story.of("in-place", turns="wrong").until(Phase.LOAD).fault("full disk on n2").settle()

    assert [active(story) for story in (refused, failed)] == ["a", "a"]
    assert refused.journal.outcomes[-1].why == "n2: no space left on device"


@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_p12b_a_full_disk_in_load_stops_neither_a_good_release_nor_the_way_back(node: str) -> None:
    good, bad = (Story.of("in-place", turns=turns).until(Phase.LOAD) for turns in ("good", "wrong"))

    ends = [active(story.fault(f"full disk on {node}").settle()) for story in (good, bad)]

    assert ends == ["b", "a"]


def test_p14_a_node_that_is_gone_is_no_traceback() -> None:
    story = Story.of("across").settle()
    story.fault("loss of n2")
    assert story.ask(back(story, Mode.ACROSS)), "the plan may hope that it returns"
    story.settle()

    assert active(story) == "b"
    outcome = story.journal.outcomes[-1]
    assert (outcome.result, outcome.why) == ("reverted", "no progress in phase 'prepare'")


def test_p14b_a_lost_node_of_the_new_release_ends_the_swap() -> None:
    story = Story.of("across").until(Phase.START).fault("loss of n3").settle()

    assert (active(story), story.journal.swap) == ("a", None)


def test_p16_of_two_operators_who_planned_on_the_same_state_one_is_refused() -> None:
    story = Story.of("in-place", automatic=False).until(Phase.BAKE)
    promote = Promote("second", story.journal.revision)
    story.operator("cancel")

    assert isinstance(story.reply(promote), Refused)
    assert (active(story.settle()), story.armed) == ("a", ["a-r0"])


@pytest.mark.parametrize("phase", ALONE)
def test_p10_a_journal_of_a_newer_version_stops_nothing_and_the_swap_ends_once_it_can_be_read(phase: Phase) -> None:
    story = Story.of("across").until(phase).fault("n1 cannot read its journal")
    before, traffic = story.journal, story.world.gateway.traffic

    while story.world.leader.away:
        assert (story.journal, story.world.gateway.traffic) == (before, traffic)
        assert story.world.serves(story.world.gateway.active) is Answer.YES
        assert story.step()

    assert (active(story.settle()), story.running) == ("b", ["b-r0"])


@pytest.mark.parametrize("phase", ALONE)
@pytest.mark.parametrize("mode", ["in-place", "across"])
def test_p11_a_damaged_journal_is_replaced_by_the_newest_copy_and_the_swap_ends(mode: str, phase: Phase) -> None:
    story = Story.of(mode).until(phase if phase in PHASES[Mode(mode)] else Phase.QUIESCE)

    story.fault("n1 cannot read its journal").rebuild().settle()

    assert (story.journal.leader, story.journal.term, story.journal.swap) == ("n1", 2, None)
    assert story.running == [f"{active(story)}-r0"]


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.LOAD, Phase.BAKE])
def test_p17_what_was_stopped_stays_stopped(phase: Phase) -> None:
    story = Story.of("in-place", automatic=False).until(phase).operator("stop").settle()
    assert (story.running, story.armed, story.world.gateway.traffic) == ([], [], "")

    story.fault("reboot of n2").settle()

    assert story.running == []


def test_p13_a_link_that_was_cut_is_used_again() -> None:
    story = Story.of("across").until(Phase.LOAD).fault("cut link to n3")

    assert active(story.settle()) == "b"


def test_p15_a_node_that_the_leader_does_not_reach_is_refused_by_name() -> None:
    story = Story.of("in-place").settle().fault("loss of n3")
    while story.step():
        pass
    reply = story.reply(Deploy("c", story.journal.revision, C, Mode.ACROSS))

    assert reply == Refused("n1 cannot reach the guards of: n3")


def test_p19_an_engine_that_computes_is_not_taken_for_a_dead_one() -> None:
    story = Story.of("in-place").until(Phase.BAKE).become("b-r0", Health.BUSY)
    for _ in range(20):
        story.step()
    assert story.journal.swap is not None
    assert not story.journal.swap.reverting

    story.become("b-r0", Health.GOOD).settle()

    assert active(story) == "b"


def test_p20_a_lost_journal_is_replaced_by_the_newest_copy() -> None:
    story = Story.of("in-place").settle()
    copies = [machine.record.copy for machine in story.world.machines[1:] if machine.record.copy]

    journal = rebuilt(copies, "n1", frozenset())

    assert (journal.active, journal.previous) == (story.journal.active, story.journal.previous)
    assert journal.term == story.journal.term + 1


def test_a_leader_whose_journal_was_moved_away_records_no_release_anew() -> None:
    story = Story.of("in-place").settle()
    serving, leader = story.journal.active, story.world.leader
    story.world = story.world.with_leader(replace(leader, journal=Journal("chat", "n1", leader.journal.peers)))
    reply = story.reply(Deploy("c", 0, C, Mode.FIRST))
    assert reply == Refused("another guard has a newer journal than n1: sparkops gateway rebuild n1")

    story.world = story.world.with_leader(replace(story.world.leader, away=True))
    story.rebuild().settle()
    assert story.deploy(Mode.ACROSS, "n3")

    assert (active(story.settle()), story.journal.previous) == ("c", serving)
    assert story.ask(back(story, Mode.ACROSS))
    assert (active(story.settle()), story.journal.active) == ("b", serving)


def test_a_leader_without_its_journal_needs_an_operator_for_what_it_accepted_before_it_saw_a_newer_copy() -> None:
    story = Story.of("in-place").settle()
    journal, fleet = story.journal, story.world.fleet(story.world.leader)
    accepted = replace(Journal("chat", "n1", journal.peers), term=journal.term, revision=journal.revision - 1)
    rebuilt_elsewhere = replace(journal, term=journal.term - 1, revision=journal.revision - 1)

    assert (step(accepted, fleet), step(rebuilt_elsewhere, fleet)) == (None, None)
    assert needs_operator(accepted, fleet) == "another guard has a newer journal than n1: sparkops gateway rebuild n1"
    assert (needs_operator(rebuilt_elsewhere, fleet), needs_operator(journal, fleet)) == ("", "")


@pytest.mark.parametrize("mode", ["in-place", "beside"])
def test_p23_p32_an_engine_that_was_stopped_by_hand_is_not_started_beside_its_successor(mode: str) -> None:
    story = Story.of(mode).until(Phase.PREPARE).stop_by_hand("a-r0").settle()
    assert (active(story), story.armed) == ("b", ["b-r0"])

    story.fault("reboot of n2").settle()

    assert story.running == ["b-r0"]


def test_an_engine_that_was_stopped_by_hand_before_the_next_deploy_does_not_start_again() -> None:
    story = Story.of("in-place").settle().stop_by_hand("b-r0").settle()
    target = deployment("c", Slot.BLUE, "n2")
    assert story.ask(lambda name, revision: Deploy(name, revision, target, Mode.FIRST))
    assert (active(story.settle()), story.armed) == ("c", ["c-r0"])

    story.fault("reboot of n2").settle()

    assert story.running == ["c-r0"]


@pytest.mark.parametrize("health", [Health.WRONG, Health.HUNG])
def test_p29_a_warm_release_that_answers_nonsense_gets_no_request(health: Health) -> None:
    story = Story.of("beside").until(Phase.RETIRE).become("a-r0", health)
    assert story.ask(back(story, Mode.BESIDE))

    assert active(story.settle()) == "b"


@pytest.mark.local
@pytest.mark.parametrize("hurt", ["stopped", "hung"])
@pytest.mark.parametrize("phase", [Phase.PROMOTE, Phase.DRAIN, Phase.RETIRE])
@pytest.mark.parametrize("mode", ["beside", "across"])
def test_a_new_release_that_dies_beside_a_warm_one_gives_it_the_traffic_and_stops(
    mode: str, phase: Phase, hurt: str
) -> None:
    """Its guard may have started it again meanwhile. The end is the same if anything else fails on the way."""
    story = Story.of(mode).until(phase).fault(f"b-r0 is {hurt}")
    if phase is Phase.RETIRE:
        assert explore(story.world, faults_=1, intents=0).ends

    story.settle()

    assert (active(story), story.running, story.armed) == ("a", ["a-r0"], ["a-r0"])
    assert (story.journal.swap, story.journal.stopped) == (None, ())


def test_p31_a_node_that_the_leader_cannot_reach_changes_nothing() -> None:
    story = Story.of("across").fault("cut link to n3").fault("loss of n3").settle()

    assert (active(story), story.running) == ("a", ["a-r0"])


@pytest.mark.parametrize("phase", [Phase.QUIESCE, Phase.FREE, Phase.START, Phase.LOAD, Phase.VERIFY])
def test_a_guard_that_cannot_be_reached_while_nothing_serves_is_no_silent_outage(phase: Phase) -> None:
    """Both releases are on its node, so the leader can do nothing for them."""
    story = Story.of("in-place").until(phase).fault("loss of n2").settle()

    assert story.journal.trouble.startswith("no progress in phase")


@pytest.mark.parametrize("phase", ALONE)
def test_the_gateway_s_node_dies_and_is_rebuilt(phase: Phase) -> None:
    story = Story.of("across").until(phase).fault("loss of n1").rebuild().settle()

    assert active(story) in ("a", "b")
    assert story.journal.leader == "n2"
    assert story.running == [f"{active(story)}-r0"]


@pytest.mark.parametrize("mode", ["in-place at the gateway", "across"])
def test_a_leader_that_returns_after_a_rebuild_decides_nothing_and_its_engines_stop(mode: str) -> None:
    story = Story.of(mode).until(Phase.BAKE).fault("loss of n1").rebuild().settle()
    before = story.journal
    story.fault("return of n1").settle()

    assert [leader.journal.term for leader in story.world.leaders] == [1, 2]
    assert (story.journal.term, story.journal.active) == (before.term, before.active)
    assert story.running == [f"{rank.container}" for rank in (before.active.ranks if before.active else ())]


def test_the_same_intent_again_gets_its_first_result() -> None:
    story = Story.of("in-place").settle()
    first = story.journal.outcomes[-1]

    reply = story.reply(Stop(first.intent, 0))

    assert reply == NothingToDo("already done")


def test_the_same_deploy_again_changes_nothing() -> None:
    story = Story.of("in-place").settle()
    target = story.journal.active
    assert target is not None

    assert isinstance(story.reply(Deploy("again", story.journal.revision, target, Mode.IN_PLACE)), NothingToDo)
    assert not story.step()


def test_a_slot_that_has_the_traffic_takes_no_other_release() -> None:
    story = Story.of("beside").settle()

    assert not story.deploy(Mode.IN_PLACE, "n2", slot=Slot.GREEN)
