"""What serves is wanted running: swaps between different sets of nodes, pairs, rebuilds and removed containers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.swap.effects import CreateEngine, MarkRestart
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.follower import Local, Record, reconcile
from sparkops.swap.journal import Journal, Swap
from sparkops.swap.model import Mode, Phase
from sparkops.swap.orders import order
from tests.swap.simulation import laws
from tests.swap.simulation.next_steps import helped
from tests.swap.simulation.scenarios import KINDS, SHAPES, deployment, serving
from tests.swap.simulation.story import Story
from tests.swap.simulation.world import BOOT

STARTS = (Phase.FREE, Phase.WORKERS, Phase.START, Phase.LOAD, Phase.VERIFY, Phase.BAKE)
SERVING = (Phase.SWITCH, Phase.BAKE, Phase.PROMOTE, Phase.DRAIN, Phase.RETIRE)
ONE_TO_TWO, TWO_TO_ONE = "in-place: n1 to n1+n2", "in-place: n1+n2 to n2"
PAIRS = "beside: n2+n3 to n2+n3"


def swap_of(story: Story) -> Swap:
    assert story.journal.swap
    return story.journal.swap


@pytest.mark.parametrize("phase", STARTS)
def test_in_place_to_more_nodes_the_old_release_returns_without_the_one_that_is_lost(phase: Phase) -> None:
    story = Story.of(ONE_TO_TWO).until(phase).fault("loss of n2").settle()

    assert (story.running, story.journal.swap, story.journal.trouble) == (["a-r0"], None, "")
    assert story.world.gateway.traffic == "a"
    assert laws.live(story.world, intervened=False) == []


@pytest.mark.parametrize("phase", STARTS)
def test_a_node_that_is_cut_off_for_good_is_not_waited_for_either(phase: Phase) -> None:
    story = Story.of(ONE_TO_TWO).until(phase).fault("cut link to n2")
    while story.world.cut and story.running != ["a-r0"]:
        assert story.step()

    assert laws.live(story.settle().world, intervened=False) == []


@pytest.mark.parametrize("fault", ["reboot of n2", "reboot of n3", "power cut"])
@pytest.mark.parametrize("phase", SERVING)
def test_a_pair_that_has_ended_while_the_old_one_is_warm_is_restarted(phase: Phase, fault: str) -> None:
    story = Story.of(PAIRS).until(phase).fault(fault).settle()

    assert story.running in (["a-r0", "a-r1"], ["b-r0", "b-r1"])
    assert (story.journal.trouble, laws.live(story.world, intervened=False)) == ("", [])


@pytest.mark.parametrize("phase", [Phase.FREE, Phase.WORKERS, Phase.START, Phase.LOAD, Phase.VERIFY])
def test_a_rebuild_starts_and_verifies_the_old_release_that_a_swap_has_stopped(phase: Phase) -> None:
    story = Story.of("in-place: n2 to n1+n2").until(phase).copied().fault("loss of n1").rebuild()
    assert (swap_of(story).reverting, swap_of(story).target.release) == (True, "a")

    story.settle()

    assert (story.running, story.armed, story.world.gateway.traffic) == (["a-r0"], ["a-r0"], "a")


def test_a_rebuild_leaves_a_new_release_that_alone_has_the_traffic() -> None:
    story = Story.of("in-place: n2 to n2").until(Phase.BAKE).copied()
    starts = story.world.starts

    story.fault("loss of n1").rebuild().settle()

    assert (story.running, story.world.gateway.traffic, story.world.starts) == (["b-r0"], "b", starts)


def test_a_rebuild_during_a_bake_returns_to_the_old_release_that_runs() -> None:
    story = Story.of("across: n2 to n3").until(Phase.BAKE).copied()
    starts = story.world.starts

    story.fault("loss of n1").rebuild()
    assert (swap_of(story).reverting, swap_of(story).target.release) == (True, "a")

    story.settle()
    assert (story.running, story.world.gateway.traffic, story.world.starts) == (["a-r0"], "a", starts)


def test_a_rebuild_returns_to_the_warm_release_where_the_promoted_one_is_lost() -> None:
    story = Story.of("across: n2 to n1").until(Phase.RETIRE).copied().fault("loss of n1").rebuild().settle()

    assert (story.running, story.world.gateway.traffic) == (["a-r0"], "a")


def test_a_rebuild_continues_the_restart_of_a_pair() -> None:
    story = Story.of(PAIRS).settle().fault("b-r1 is stopped").until(Phase.LOAD).copied()
    key, restarts = swap_of(story).key, story.journal.restarts

    story.fault("loss of n1").rebuild()

    assert (swap_of(story).restarts, swap_of(story).key, story.journal.restarts) == (True, key, restarts)
    assert story.settle().running == ["b-r0", "b-r1"]


def test_a_rebuild_continues_with_the_new_release_where_the_old_one_is_lost() -> None:
    story = Story.of(TWO_TO_ONE).until(Phase.FREE).copied().fault("loss of n1").rebuild().settle()

    assert (story.journal.without, story.journal.leader) == (frozenset({"n1"}), "n2")
    assert (story.running, story.world.gateway.traffic) == (["b-r0"], "b")


def test_a_rebuild_never_promotes_what_has_failed_its_checks() -> None:
    _, target, _ = SHAPES[TWO_TO_ONE]
    wrong = replace(target, replicas=deployment("b", target.slot, "n2", turns="wrong").replicas)
    journal = serving(SHAPES[TWO_TO_ONE][0]).leader.journal.begun("i1", Mode.IN_PLACE, wrong, automatic=True)
    while journal.swap and journal.swap.phase is not Phase.VERIFY:
        journal = journal.advanced()
    story = Story(serving(SHAPES[TWO_TO_ONE][0]))
    story.world = story.world.with_leader(replace(story.world.leader, journal=journal.reverted("it failed its checks")))

    story.copied().fault("loss of n1").rebuild().settle()

    assert (story.journal.active, story.journal.swap, story.running) == (None, None, [])
    assert story.world.machine("n2").record.armed is None


def test_a_promoted_container_that_was_removed_is_created_and_started() -> None:
    release = deployment("a", SHAPES[ONE_TO_TWO][1].slot, "n1")
    [rank] = release.ranks
    journal = Journal("chat", "n1", revision=5, active=release)
    local = Local(BOOT, Record(copy=journal, armed=rank), {}, free_gib=10.0)

    for ordered in (order(journal, "n1", BOOT), None):
        assert reconcile(ordered, local) == CreateEngine(rank)
        assert reconcile(ordered, replace(local, paused=frozenset({rank.container}))) is None
        assert reconcile(ordered, replace(local, by_hand=frozenset({rank.container}))) is None
        assert reconcile(ordered, replace(local, engines={rank.container: EngineState.STOPPED})) == MarkRestart("a-r0")


@pytest.mark.parametrize("shape", KINDS)
def test_a_prune_between_a_boot_and_the_start_after_it_removes_nothing_for_good(shape: str) -> None:
    story = Story.of(shape).settle().fault("power cut")
    for node in sorted(SHAPES[shape][1].nodes):
        story.fault(f"docker container prune on {node}")

    assert story.settle().running == sorted(rank.container for rank in SHAPES[shape][1].ranks)


def test_a_step_that_brings_no_release_up_breaks_a_law() -> None:
    story = Story.of("in-place: n2 to n2").until(Phase.LOAD).fault("loss of n2")
    while story.step():
        pass
    assert story.journal.trouble
    assert helped(story.world) == []

    journal = replace(story.journal, trouble="the gateway cannot be read")
    story.world = story.world.with_leader(replace(story.world.leader, journal=journal))

    assert helped(story.world) == [
        "21: no printed step brings a release up: the gateway cannot be read: sparkops doctor --fix"
    ]
