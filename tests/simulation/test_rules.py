"""What a fault in one rule of the machine would break, where no exploration of `make test` reaches it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.release import Slot
from sparkops.swap.effects import ProveEngine, SwitchTraffic, WriteJournal
from sparkops.swap.follower import BOOT_RESTARTS, Local, Record, reconcile
from sparkops.swap.intents import Configure, Deploy, rebuilt
from sparkops.swap.leader import needs_operator, step
from sparkops.swap.model import Answer, Mode, Phase, RankSpec
from sparkops.swap.orders import Order, RankOrder, Want, order
from sparkops.swap.seen import EngineState
from tests.simulation.messages import deliver
from tests.simulation.scenarios import ask, deployment, serving
from tests.simulation.story import Story
from tests.simulation.transitions import lead
from tests.simulation.views import Health
from tests.simulation.world import BOOT, EARLIER, LONG, Gateway, Leader, Machine


def ordered(story: Story, node: str) -> tuple[Machine, Order]:
    """A guard and the order that it follows."""
    machine = story.world.machine(node)
    assert machine.order is not None
    return machine, machine.order


def test_an_order_of_an_earlier_boot_is_not_followed() -> None:
    story = Story.of("in-place").until(Phase.LOAD)
    _, late = ordered(story, "n2")
    story.fault("reboot of n2")

    assert deliver(story.world, story.world.machine("n2"), replace(late, boot=EARLIER)) is story.world


def test_an_order_of_an_older_term_is_not_followed_whatever_its_revision() -> None:
    story = Story.of("across").until(Phase.LOAD)
    _, late = ordered(story, "n2")
    story.fault("loss of n1").rebuild().settle()
    machine, newest = ordered(story, "n2")
    revised = replace(late, journal=replace(late.journal, revision=newest.journal.revision + 1))

    assert deliver(story.world, machine, revised) is story.world


def test_what_the_leader_stopped_stays_stopped_when_its_guard_forgets_the_order() -> None:
    story = Story.of("in-place").until(Phase.START)
    story.fault("crash of the guard on n2")
    machine = story.world.machine("n2")

    assert machine.record.armed is not None
    assert reconcile(None, machine.local()) is None


def test_a_leader_that_restarts_decides_nothing_before_a_peer_confirms_it() -> None:
    story = Story.of("in-place at the gateway").until(Phase.BAKE)
    story.fault("cut link to n2").fault("cut link to n3").fault("crash of the guard on n1")
    story.world = replace(story.world, gateway=replace(story.world.gateway, slots=()))
    before = story.journal

    while story.world.cut == {"n2", "n3"}:
        assert story.journal == before
        assert "no other guard confirms" in needs_operator(before, story.world.seen(story.world.leader))
        assert story.step()

    assert story.settle().journal.swap is None


def test_a_leader_that_was_only_cut_off_ends_once_it_hears_of_its_successor() -> None:
    story = Story.of("across").until(Phase.BAKE)
    old = story.world.leader
    copies = [machine.record.copy for machine in story.world.machines if machine.name != "n1" and machine.record.copy]
    new = Leader(rebuilt(copies, "n2", frozenset({"n1"})))
    story.world = replace(story.world, leaders=(old, new), gateway=Gateway("n2"), cut=frozenset({"n1"}), touched=True)
    while story.world.cut:
        assert story.step()
    before = next(leader for leader in story.world.leaders if leader.journal.term == old.journal.term)

    story.settle()

    after = next(leader for leader in story.world.leaders if leader.journal.term == old.journal.term)
    assert after.journal == before.journal
    assert story.journal.leader == "n2"


def test_a_pair_whose_rank_ends_serves_again_by_itself() -> None:
    story = Story.of("pair in-place").settle().fault("b-r1 is stopped").settle()

    assert story.journal.trouble == ""
    assert story.running == ["b-r0", "b-r1"]


def test_an_earlier_restart_from_the_boot_record_does_not_excuse_an_engine_that_still_runs() -> None:
    story = Story.of("in-place").until(Phase.PREPARE).fault("reboot of n2").until(Phase.FREE)
    leader = story.world.leader
    assert story.world.machine("n2").record.restarts == 1
    assert story.running == ["a-r0"]

    after = lead(story.world, leader, WriteJournal(leader.journal.advanced()))

    assert after.wrongs == ("12: the old release runs, and the new one may start",)


def test_an_engine_that_somebody_started_is_gone_before_its_successor_starts() -> None:
    small = [deployment(name, slot, "n2", claim=0.5) for name, slot in (("a", Slot.BLUE), ("b", Slot.GREEN))]
    begun = ask(serving(small[0]), lambda name, revision: Deploy(name, revision, small[1], Mode.IN_PLACE))
    assert begun is not None
    story = Story(begun).until(Phase.START).become("a-r0", Health.GOOD)

    while "b-r0" not in story.running:
        assert story.step()

    assert story.running == ["b-r0"]


def test_a_new_leader_is_followed_although_its_revision_is_lower() -> None:
    story = Story.of("across").until(Phase.LOAD).fault("loss of n1").rebuild()
    new = order(story.journal, "n3", BOOT)
    machine = story.world.machine("n3")
    copy = replace(machine.record.copy or story.journal, revision=new.journal.revision + 5, term=1)
    ahead = replace(machine, record=replace(machine.record, copy=copy, term=1), order=None)

    assert deliver(story.world.with_machine(ahead), ahead, new).machine("n3").order == new


def test_a_container_that_was_pruned_is_not_created_to_be_stopped() -> None:
    journal = Story.of("in-place").settle().journal
    gone = RankSpec("n2", "old-r0", 1.0, "old good")
    told = replace(order(journal, "n2", BOOT), ranks=(RankOrder(gone, Want.STOPPED), RankOrder(gone, Want.AS_IS)))

    assert reconcile(told, Local(BOOT, Record(copy=journal, armed=told.armed.rank if told.armed else None))) is None


def test_an_engine_that_loads_is_not_asked_to_prove_itself() -> None:
    story = Story.of("in-place").until(Phase.VERIFY)
    while not any(rank.prove for rank in ordered(story, "n2")[1].ranks):
        assert story.step()
    story.become("b-r0", Health.LOADING)
    machine, told = ordered(story, "n2")

    assert not isinstance(reconcile(told, machine.local()), ProveEngine)


def test_an_engine_that_ends_again_and_again_waits_for_an_operator() -> None:
    story = Story.of("in-place").settle()
    for _ in range(BOOT_RESTARTS):
        story.fault("b-r0 is stopped").settle()
        assert story.running == ["b-r0"]

    story.fault("b-r0 is stopped").settle()

    assert (story.running, story.journal.trouble) == ([], "b does not answer")


def test_agents_that_cannot_be_seen_are_configured_later() -> None:
    story = Story.of("in-place").settle()
    assert story.ask(lambda name, revision: Configure(name, revision, "new"))
    story.fault("HAProxy stalls")

    assert story.settle().world.gateway.agents == "new"


def test_a_node_that_was_given_up_and_returns_takes_part_again() -> None:
    story = Story.of("across").until(Phase.BAKE).fault("loss of n2").settle()
    assert story.deploy(Mode.IN_PLACE, "n3", without=frozenset({"n2"}))
    assert story.settle().journal.without == {"n2"}

    story.fault("return of n2").settle()

    assert (story.journal.without, story.running) == (frozenset(), ["c-r0"])


def test_a_release_that_hangs_after_its_checks_is_refused_at_once() -> None:
    story = Story.of("across").until(Phase.VERIFY)
    while not any(proof[2] is Answer.YES for proof in story.world.machine("n3").proofs):
        assert story.step()
    story.become("b-r0", Health.HUNG).settle()

    outcome = story.journal.outcomes[-1]
    assert (outcome.result, outcome.why) == ("reverted", "b does not answer through the gateway")


@pytest.mark.parametrize("mode", ["in-place", "across"])
def test_the_traffic_moves_only_after_another_guard_has_the_journal(mode: str) -> None:
    story = Story.of(mode).until(Phase.SWITCH)
    leader = story.world.leader
    copies = [machine.record.copy for machine in story.world.machines]
    assert leader.journal not in copies

    assert not isinstance(step(leader.journal, story.world.seen(leader)), SwitchTraffic)


def test_a_load_has_no_bound_while_its_guard_watches_it() -> None:
    story = Story.of("in-place").until(Phase.LOAD)
    while story.world.seen(story.world.leader).reports["n2"].adopted < story.journal.revision:
        assert story.step()
    assert story.world.seen(story.world.leader).reports["n2"].engine("b-r0").state is EngineState.LOADING
    seen = replace(story.world.seen(story.world.leader), waited_s=LONG)

    assert step(story.journal, seen) is None
