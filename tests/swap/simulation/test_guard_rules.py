"""What a guard does by itself, where no exploration of `make test` reaches it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import CreateEngine, MarkRestart, MarkStart, MarkStop
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.follower import Local, Record, adopts, reconcile, report, reserved_gib, worker_loaded
from sparkops.swap.journal import present
from sparkops.swap.leader import failure
from sparkops.swap.model import Answer, Phase
from sparkops.swap.orders import Order, Want
from tests.swap.simulation.scenarios import deployment, empty
from tests.swap.simulation.story import Story
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import BOOT, EARLIER, Machine, reported

NEXT = next(deployment("b", Slot.GREEN, "n2").ranks)


def ordered_to_start(story: Story) -> tuple[Machine, Order]:
    """The guard on n2 once it has received the order to start the new release."""
    while True:
        machine = story.world.machine("n2")
        if machine.order is not None and any(rank.key for rank in machine.order.ranks):
            return machine, machine.order
        assert story.step()


def test_what_was_stopped_in_an_earlier_boot_may_start_in_this_one() -> None:
    story = Story.of("in-place").until(Phase.START).fault("loss of n1").fault("reboot of n2")
    machine = story.world.machine("n2")

    assert machine.record.down == {"a-r0"}
    assert reconcile(None, machine.local()) == MarkRestart("a-r0")


def test_stops_of_one_boot_are_noted_together_and_those_of_another_are_forgotten() -> None:
    record = Record().after(MarkStop("a-r0"), EARLIER).after(MarkStop("b-r0"), BOOT).after(MarkStop("c-r0"), BOOT)

    assert (record.boot, record.down) == (BOOT, frozenset({"b-r0", "c-r0"}))


def test_a_container_that_was_pruned_before_its_start_is_created_again() -> None:
    story = Story.of("in-place").until(Phase.START)
    machine, order = ordered_to_start(story)
    pruned = replace(machine, engines=tuple(engine for engine in machine.engines if engine.container != "b-r0"))

    assert isinstance(reconcile(order, pruned.local()), CreateEngine)


@pytest.mark.parametrize("state", [EngineState.ABSENT, EngineState.STOPPED])
def test_no_order_creates_or_starts_what_docker_has_refused_a_moment_ago(state: EngineState) -> None:
    machine, ordered = ordered_to_start(Story.of("in-place").until(Phase.START))
    local = replace(machine.local(), engines={"a-r0": EngineState.STOPPED, "b-r0": state})

    assert reconcile(ordered, local) in (CreateEngine(NEXT), MarkStart("b-r0", ordered.ranks[0].key, ""))
    assert reconcile(ordered, replace(local, paused=frozenset({"b-r0"}))) is None


def test_what_the_boot_record_names_takes_the_memory_that_is_kept_for_it() -> None:
    local = Local(BOOT, Record(armed=NEXT), {"b-r0": EngineState.STOPPED}, free_gib=10.0, reserved_gib=10.0)

    assert reconcile(None, local) == MarkRestart("b-r0")
    assert reserved_gib(replace(NEXT, container="c-r0"), local) == 10.0


def test_a_start_that_never_begins_for_lack_of_memory_has_failed() -> None:
    story = Story.of("in-place").until(Phase.START)
    swap = story.journal.swap
    assert swap is not None
    machine, _ = ordered_to_start(story)
    machine = replace(machine, problems=(("b-r0", "2 GiB of memory needed, 1 GiB free"),))
    fleet = story.world.fleet(story.world.leader)

    short = replace(fleet, reports={**fleet.reports, "n2": reported(machine)})

    assert machine.record.key("b-r0") != swap.key
    assert reported(replace(machine, problems=(("a-r0", "killed"),))).engine("a-r0").key != swap.key
    assert failure(story.journal, swap, short) == "n2: 2 GiB of memory needed, 1 GiB free"


def test_a_start_that_is_ordered_and_has_not_begun_has_not_ended() -> None:
    story = Story.of("in-place").until(Phase.START)
    machine, _ = ordered_to_start(story)
    fleet, swap = story.world.fleet(story.world.leader), story.journal.swap
    assert swap is not None

    ordered = replace(fleet, reports={**fleet.reports, "n2": reported(machine)})

    assert ordered.reports["n2"].engine("b-r0").state is EngineState.STOPPED
    assert failure(story.journal, swap, ordered) == ""


def test_a_start_that_is_marked_counts_as_loading() -> None:
    story = Story.of("in-place").until(Phase.START)
    while not story.world.machine("n2").pending:
        assert story.step()
    engine = reported(story.world.machine("n2")).engine("b-r0")

    assert (engine.state, engine.key) == (EngineState.LOADING, "")


@pytest.mark.parametrize("mode", ["first", "across", "in-place"])
def test_a_start_that_its_guard_did_not_live_to_execute_is_made_up_for(mode: str) -> None:
    story = Story.of(mode).until(Phase.START)
    while not (pending := [machine for machine in story.world.machines if machine.pending]):
        assert story.step()
    release = present(story.journal.swap).target.release

    story.fault(f"crash of the guard on {pending[0].name}").settle()

    assert present(story.journal.active).release == release


def test_a_start_that_docker_refused_is_not_tried_again() -> None:
    story = Story.of("in-place").until(Phase.START)
    while not story.world.machine("n2").pending:
        assert story.step()
    refused = replace(story.world.machine("n2"), pending="", problems=(("b-r0", "no such device"),))

    assert reconcile(refused.order, refused.local()) is None


def test_a_node_where_nothing_is_promoted_kills_nothing_without_an_order() -> None:
    assert Story(empty()).relieve("n2") == ""


def test_an_order_that_was_followed_is_not_taken_back_by_an_older_one() -> None:
    story = Story.of("across").until(Phase.LOAD)
    machine = story.world.machine("n3")
    newest = machine.order
    assert newest is not None
    older = replace(newest, journal=replace(newest.journal, revision=newest.journal.revision - 1))
    forgetful = Local(BOOT, Record(term=newest.journal.term))

    assert adopts(older, None, forgetful)
    assert not adopts(older, newest, forgetful)
    assert not adopts(older, None, machine.local())
    assert report("n3", None, forgetful).revision == -1


def test_an_order_of_a_new_leader_is_not_taken_back_by_one_of_the_old_leader_before_its_journal_is_on_disk() -> None:
    story = Story.of("across").until(Phase.LOAD)
    machine = story.world.machine("n3")
    old = present(machine.order)
    new = replace(old, journal=replace(old.journal, term=old.journal.term + 1, revision=0))
    late = replace(old, journal=replace(old.journal, revision=old.journal.revision + 1))

    assert adopts(new, old, machine.local())
    assert adopts(late, old, machine.local())
    assert not adopts(late, new, machine.local())


def test_a_container_that_an_order_stops_is_not_restarted_after_a_boot() -> None:
    story = Story.of("in-place").until(Phase.START)
    machine, order = ordered_to_start(story)
    old = tuple(rank for rank in order.ranks if rank.rank.container == "a-r0")
    booted = replace(machine, record=replace(machine.record, boot=EARLIER)).local()

    assert [rank.want for rank in old] == [Want.STOPPED]
    assert reconcile(replace(order, ranks=old), booted) is None
    assert reconcile(replace(order, ranks=()), booted) == MarkRestart("a-r0")


def test_a_release_that_ends_is_restarted_while_its_successor_loads() -> None:
    story = Story.of("across").until(Phase.LOAD).fault("a-r0 is stopped")
    machine = story.world.machine("n2")

    assert [rank.want for rank in machine.order.ranks] == [Want.AS_IS] if machine.order else False
    assert reconcile(machine.order, machine.local()) == MarkRestart("a-r0")


def test_a_release_that_ends_is_restarted_while_its_predecessor_is_to_stay_stopped() -> None:
    story = Story.of("beside").until(Phase.RETIRE)
    while story.journal.swap or "a-r0" in story.running:
        assert story.step()
    story.fault("b-r0 is stopped")
    machine = story.world.machine("n2")

    assert [rank.want for rank in machine.order.ranks] == [Want.STOPPED] if machine.order else False
    assert reconcile(machine.order, machine.local()) == MarkRestart("b-r0")


def test_a_release_that_is_kept_warm_would_not_start_after_a_boot() -> None:
    story = Story.of("across").until(Phase.RETIRE)

    assert ("a-r0" in story.running, story.armed) == (True, ["b-r0"])


def restarted_beside(story: Story) -> Machine:
    """The guard of n2 restarts where a serves and b loads, and has asked neither of them yet."""
    while story.running != ["a-r0", "b-r0"]:
        assert story.step()
    story.fault("crash of the guard on n2")
    return story.world.machine("n2")


def test_a_guard_that_restarts_takes_no_engine_for_loaded_or_loading_before_it_has_asked() -> None:
    story = Story.of("beside").until(Phase.START)
    machine = restarted_beside(story)
    serving = machine.existing("a-r0")
    down = machine.holding(replace(serving, health=Health.STOPPED, claim=0.0))

    assert {machine.loaded(engine) for engine in machine.engines} == {Answer.UNKNOWN}
    assert {engine.state for engine in reported(machine).engines} == {EngineState.LOADING}
    assert reconcile(None, replace(down, unasked=frozenset({"b-r0"})).local()) is None, "b may load"
    assert list(machine.expendable()) == ["b-r0"], "it is not promoted"
    story.fault("memory of n2 runs out: b-r0 is killed").settle()
    assert story.running == ["a-r0"]


def test_a_guard_that_restarts_asks_its_engines() -> None:
    story = Story.of("beside").until(Phase.START)
    restarted_beside(story)
    while story.world.machine("n2").unasked:
        assert story.step()

    loaded = {
        engine.container: story.world.machine("n2").loaded(engine) for engine in story.world.machine("n2").engines
    }
    assert loaded == {"a-r0": Answer.YES, "b-r0": Answer.NO}
    assert story.settle().running == ["b-r0"]


def test_memory_ends_what_loads_beside_what_serves_after_a_boot_too() -> None:
    """The boot record of an engine that loads again names it, and it is killed all the same."""
    story = Story.of("in-place").settle().fault("b-r0 is stopped")
    while story.running != ["b-r0"]:
        assert story.step()

    assert story.world.machine("n2").existing("b-r0").health is Health.LOADING
    assert story.relieve("n2") == "b-r0"
    assert story.settle().running == ["b-r0"]


def test_a_release_that_moves_is_not_killed_for_memory_on_the_node_where_it_serves() -> None:
    story = Story.of("move").until(Phase.START)

    assert (story.relieve("n2"), story.running) == ("", ["a-r0"])


def test_a_worker_rank_loads_until_its_replica_is_verified() -> None:
    story = Story.of("pair in-place").until(Phase.LOAD)
    loading = story.journal
    ranks = {place: worker_loaded(*place, loading) for place in (("n3", "b-r1"), ("n2", "b-r1"), ("n3", "a-r1"))}

    assert ranks == {("n3", "b-r1"): Answer.NO, ("n2", "b-r1"): Answer.YES, ("n3", "a-r1"): Answer.YES}
    assert worker_loaded("n3", "b-r1", story.until(Phase.VERIFY).journal) is Answer.YES
    assert worker_loaded("n3", "b-r1", None) is Answer.UNKNOWN
