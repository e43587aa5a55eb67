"""What a journal records of a swap, a stop and a rebuild, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.intents import Deploy, Stop
from sparkops.swap.journal import RESTARTS, Journal
from sparkops.swap.model import MAX_REPLICAS, Deployment, Mode, Phase, Replica
from sparkops.swap.rebuild import rebuilt, taken
from tests.swap.simulation.scenarios import MODES, A
from tests.swap.simulation.story import C, Story
from tests.swap.simulation.test_reproductions import active, back
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import Gateway


def test_a_return_restores_the_journal_of_before_and_says_so() -> None:
    story = Story.of("in-place").settle()
    assert story.deploy(Mode.IN_PLACE, "n2")
    story.until(Phase.BAKE).fault("c-r0 is hung").settle()
    journal = story.journal

    assert (active(story), journal.previous and journal.previous.release) == ("b", A)
    assert [(outcome.intent, outcome.result) for outcome in journal.outcomes] == [
        ("i0", "done"),
        ("i1", "done"),
        ("i2", "reverted"),
    ]


def test_a_return_bakes_nothing() -> None:
    story = Story.of("in-place", automatic=False).until(Phase.BAKE).operator("cancel").settle()

    assert (active(story), story.running, story.journal.swap) == ("a", ["a-r0"], None)


def test_a_return_whose_start_fails_stops_the_engine_and_starts_it_anew() -> None:
    story = Story.of("in-place").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.VERIFY)
    assert story.journal.swap is not None
    assert story.journal.swap.reverting

    story.become("a-r0", Health.HUNG).settle()

    assert (active(story), story.running, story.journal.trouble) == ("a", ["a-r0"], "")


def test_a_swap_that_ends_before_the_old_release_stops_restarts_nothing() -> None:
    story = Story.of("in-place").until(Phase.QUIESCE)
    starts = story.world.starts
    story.operator("cancel").settle()

    assert (active(story), story.running, story.world.starts) == ("a", ["a-r0"], starts)


@pytest.mark.parametrize("mode", ["beside", "across"])
def test_a_rollback_to_a_warm_release_does_not_stop_it(mode: str) -> None:
    story = Story.of(mode).until(Phase.RETIRE)
    assert story.ask(back(story, Mode(mode)))
    while story.step():
        assert "a-r0" in story.running

    assert active(story) == "a"


def test_a_first_release_that_fails_stops_although_the_gateway_cannot_be_read() -> None:
    story = Story.of("first", turns="loading").until(Phase.LOAD).fault("HAProxy stalls")
    while story.world.gateway.stalled:
        assert story.step()

    assert (story.running, story.journal.swap, story.journal.active) == ([], None, None)


def test_after_a_stop_the_release_that_served_last_is_the_previous_one() -> None:
    story = Story.of("in-place").settle().operator("stop").settle()
    assert (story.journal.active, story.journal.previous and story.journal.previous.release) == (None, "b")

    assert story.ask(lambda name, revision: Deploy(name, revision, C, Mode.FIRST))
    story.until(Phase.LOAD)
    assert story.ask(lambda name, revision: Stop(name, revision, force=True))
    story.settle()

    assert (story.running, story.journal.previous and story.journal.previous.release) == ([], "b")


@pytest.mark.parametrize(("starts", "previous"), [("b", "a"), ("c", "b")])
def test_after_a_stop_the_previous_release_is_the_one_before_what_starts(starts: str, previous: str) -> None:
    story = Story.of("in-place").settle().operator("stop").settle()
    journal = story.journal
    assert (journal.previous and journal.previous.release, journal.earlier and journal.earlier.release) == ("b", "a")
    target = journal.previous if starts == "b" else C
    assert target

    assert story.ask(lambda name, revision: Deploy(name, revision, target, Mode.FIRST))
    journal = story.settle().journal

    assert journal.active == target
    assert (journal.previous and journal.previous.release, journal.earlier) == (previous, None)


def test_a_rollback_notes_the_release_that_it_leaves_until_that_is_named() -> None:
    story = Story.of("across").settle()
    old, new = story.journal.previous, story.journal.active
    assert old
    assert new

    assert story.ask(lambda name, revision: Deploy(name, revision, old, Mode.ACROSS, verb="rollback"))
    assert (story.settle().journal.active, story.journal.withdrawn) == (old, new.release)
    assert story.ask(lambda name, revision: Deploy(name, revision, new, Mode.ACROSS, verb="rollback"))
    assert (story.settle().journal.active, story.journal.withdrawn) == (new, ""), "it is rolled back again as before"


def test_a_stop_names_what_may_still_run_but_on_nodes_that_were_given_up() -> None:
    story = Story.of("in-place").settle()
    assert list(replace(story.journal, stopped=tuple(MODES["across"][1].ranks)).halting) == []
    story.operator("stop")
    while story.journal.deployments:
        assert story.step()

    assert [rank.container for rank in story.journal.halting] == ["b-r0"]
    assert replace(story.journal, without=frozenset({"n2"})).halting == ()
    assert story.settle().journal.halting == ()


def test_a_gateway_that_is_empty_after_the_switch_gets_the_new_release() -> None:
    story = Story.of("across", automatic=False).until(Phase.BAKE)
    story.world = replace(story.world, gateway=Gateway("n1"), touched=True)
    while not story.world.gateway.traffic:
        assert story.step()

    assert story.world.gateway.traffic == "b"


def test_a_release_that_was_stopped_by_hand_is_not_started_to_get_the_traffic_back() -> None:
    story = Story.of("across").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.SWITCH).stop_by_hand("a-r0").settle()

    assert "a-r0" not in story.running


def test_a_journal_without_a_swap_cannot_advance() -> None:
    with pytest.raises(ValueError, match="lacks what its state needs"):
        Journal("chat", "n1").advanced()


@pytest.mark.parametrize("replicas", [(), (Replica(()),), (*C.replicas,) * (MAX_REPLICAS + 1)])
def test_a_release_has_one_to_sixteen_replicas_of_a_rank_or_more(replicas: tuple[Replica, ...]) -> None:
    with pytest.raises(ValueError, match="expected 1 to 16 replicas"):
        Deployment("c", Slot.BLUE, replicas)


def test_a_rebuild_gives_up_only_what_was_lost() -> None:
    first, target, _ = MODES["across"]
    assert first is not None
    journal = Journal("chat", "n1", ("n2", "n3"), revision=7, active=first)
    swapping = journal.begun("i1", Mode.ACROSS, target, automatic=True)
    stopping = replace(swapping, stopped=tuple(target.ranks))
    older = replace(journal, revision=9, term=0)

    kept, lost, active_lost, twice = (
        rebuilt([older, copy], "n2", frozenset(nodes))
        for copy, nodes in ((swapping, ["n1"]), (swapping, ["n3"]), (swapping, ["n2"]), (stopping, ["n3"]))
    )

    assert (kept.term, kept.leader, kept.peers, kept.without) == (2, "n2", ("n1", "n3"), frozenset({"n1"}))
    assert (kept.active, kept.swap, kept.stopped) == (first, None, tuple(target.ranks))
    assert (lost.active, lost.swap, lost.stopped) == (first, None, tuple(target.ranks))
    assert (active_lost.active, active_lost.swap, active_lost.stopped) == (None, swapping.swap, tuple(first.ranks))
    assert twice.stopped == tuple(target.ranks)


def test_a_leader_with_other_guards_keeps_what_concerns_them() -> None:
    ranks = (*C.ranks, *MODES["across"][1].ranks, *MODES["in-place"][1].ranks)
    old = Journal("chat", "n9", ("n1", "n3"), frozenset({"n3", "n9"}), revision=4, stopped=ranks)

    new = taken("chat", [old], "n1", ("n3",))

    assert (new.leader, new.peers, new.term, new.without) == ("n1", ("n3",), 2, frozenset({"n3"}))
    assert {rank.node for rank in new.stopped} == {"n3"}
    assert taken("chat", [], "n1", ("n3",)) == Journal("chat", "n1", ("n3",))


def test_a_release_that_never_loads_again_is_restarted_three_times() -> None:
    story = Story.of("in-place").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.LOAD)
    before = story.journal.starts
    while "a-r0" not in story.running:
        assert story.step()
    story.fault("a-r0 is hung").settle()

    assert (story.journal.trouble, story.journal.starts) == ("n2: stalled", before + RESTARTS)


def test_a_restart_that_fails_is_tried_again_and_is_no_return() -> None:
    story = Story.of("pair in-place").settle().fault("b-r1 is stopped").until(Phase.LOAD)
    while story.running != ["b-r0", "b-r1"]:
        assert story.step()
    story.fault("b-r1 is stopped").settle()

    assert (active(story), story.running, story.journal.trouble) == ("b", ["b-r0", "b-r1"], "")
    assert {outcome.result for outcome in story.journal.outcomes} == {"done"}


def test_a_return_after_a_promotion_leaves_each_release_its_boot_record() -> None:
    """The warm release's node is lost as the release is promoted; then the power of the other one fails."""
    story = Story.of("across").until(Phase.RETIRE)
    assert story.ask(back(story, Mode.ACROSS))
    story.until(Phase.PROMOTE).fault("loss of n2").until(Phase.SWITCH)
    for _ in range(2):
        assert story.step()
    story.fault("reboot of n3").settle()

    assert (active(story), story.running, story.journal.trouble) == ("b", ["b-r0"], "")
