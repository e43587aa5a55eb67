"""What a fault in one rule of the machine would break, where no exploration of `make test` reaches it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import CutRequests, PointSlot, ProveEngine, SwitchTraffic, WriteJournal
from sparkops.swap.events import narrate
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView
from sparkops.swap.follower import Local, Record, reconcile
from sparkops.swap.intents import Deploy
from sparkops.swap.journal import RESTARTS, Journal, present
from sparkops.swap.leader import failure, needs_operator, step
from sparkops.swap.model import Answer, Mode, Phase, RankSpec
from sparkops.swap.orders import Armed, Order, RankOrder, Want, order
from sparkops.swap.phases import drained, proven
from sparkops.swap.rebuild import rebuilt
from tests.swap.simulation.explore import explore
from tests.swap.simulation.messages import deliver
from tests.swap.simulation.scenarios import ask, deployment, gateway_view, serving
from tests.swap.simulation.story import Story
from tests.swap.simulation.transitions import lead
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import BOOT, EARLIER, LONG, Gateway, Leader, Machine


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
    story.world = replace(story.world, gateway=Gateway("n1"))
    before = story.journal

    while story.world.cut == {"n2", "n3"}:
        assert story.journal == before
        assert "no other guard confirms" in needs_operator(before, story.world.fleet(story.world.leader))
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


def test_a_rebuild_is_later_than_one_that_no_guard_has_heard_of_but_by_joining_it() -> None:
    story = Story.of("first").fault("loss of n1").rebuild().fault("loss of n2").rebuild()
    terms = {leader.journal.leader: leader.journal.term for leader in story.world.leaders}

    assert terms["n2"] < terms["n3"]
    assert story.fault("return of n2").settle().journal.leader == "n3"


def test_a_guard_that_has_joined_a_new_leader_follows_no_former_one_whatever_terms_it_knows() -> None:
    story = Story.of("first").fault("loss of n1").rebuild().fault("return of n1")
    story.fault("n2 cannot read its journal").settle()

    assert (story.running, story.journal.leader, story.journal.active) == ([], "n2", None)


def test_a_pair_whose_rank_ends_serves_again_by_itself() -> None:
    story = Story.of("pair in-place").settle().fault("b-r1 is stopped").settle()

    assert story.journal.trouble == ""
    assert story.running == ["b-r0", "b-r1"]


def verdict(fleet: FleetState, journal: Journal, rank: RankSpec, proven: Answer) -> FleetState:
    """What the leader sees once the guard of a node has verified the new rank there."""
    assert journal.swap is not None
    engine = EngineReport(rank.container, EngineState.HEALTHY, journal.swap.key, proven, journal.swap.key)
    report = replace(fleet.reports[rank.node], adopted=journal.revision, engines=(engine,))
    return replace(fleet, reports={**fleet.reports, rank.node: report})


def test_a_release_waits_for_the_verdict_on_every_rank() -> None:
    story = Story.of("pair in-place").until(Phase.VERIFY)
    while not all(any(rank.prove for rank in ordered(story, node)[1].ranks) for node in ("n2", "n3")):
        assert story.step()
    journal, fleet = story.journal, story.world.fleet(story.world.leader)
    assert journal.swap is not None
    head, worker = journal.swap.target.ranks

    half = verdict(verdict(fleet, journal, head, Answer.YES), journal, worker, Answer.UNKNOWN)
    assert proven(journal, journal.swap, half) is Answer.LATER
    assert proven(journal, journal.swap, verdict(half, journal, worker, Answer.YES)) is Answer.YES
    refused = verdict(half, journal, worker, Answer.NO)
    assert failure(journal, journal.swap, refused) == f"{worker.node}: {worker.container} failed its checks"


def test_an_earlier_restart_from_the_boot_record_does_not_excuse_an_engine_that_still_runs() -> None:
    story = Story.of("in-place").until(Phase.PREPARE).fault("reboot of n2").until(Phase.FREE)
    leader = story.world.leader
    assert story.world.machine("n2").record.restarts == 1
    assert story.running == ["a-r0"]

    after = lead(story.world, leader, WriteJournal(leader.journal.advanced()))

    assert after.wrongs == ("12: the old release runs on a node of the new one, which may start",)


def test_an_engine_that_somebody_started_is_gone_before_its_successor_starts() -> None:
    small = [deployment(name, slot, "n2", claim=0.5) for name, slot in (("a", Slot.BLUE), ("b", Slot.GREEN))]
    started = ask(serving(small[0]), lambda name, revision: Deploy(name, revision, small[1], Mode.IN_PLACE))
    assert started is not None
    story = Story(started).until(Phase.START)
    while not any(rank.key for rank in ordered(story, "n2")[1].ranks):
        assert story.step()
    story.become("a-r0", Health.GOOD)

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
    ordered = replace(order(journal, "n2", BOOT), ranks=(RankOrder(gone, Want.STOPPED), RankOrder(gone, Want.AS_IS)))

    assert reconcile(replace(ordered, armed=Armed()), Local(BOOT, Record(copy=journal))) is None


def test_an_engine_that_loads_is_not_asked_to_prove_itself() -> None:
    story = Story.of("in-place").until(Phase.VERIFY)
    while not any(rank.prove for rank in ordered(story, "n2")[1].ranks):
        assert story.step()
    story.become("b-r0", Health.LOADING)
    machine, node_order = ordered(story, "n2")

    assert not isinstance(reconcile(node_order, machine.local()), ProveEngine)


def test_an_engine_that_ends_again_and_again_waits_for_an_operator() -> None:
    story = Story.of("in-place").settle()
    for _ in range(RESTARTS):
        story.fault("b-r0 is stopped").settle()
        assert story.running == ["b-r0"]

    story.fault("b-r0 is stopped").settle()

    assert (story.running, story.journal.trouble) == ([], "b does not answer")


def test_a_promoted_release_has_the_whole_budget_of_restarts() -> None:
    story = Story.of("in-place").until(Phase.PREPARE).fault("reboot of n2").until(Phase.FREE)
    assert story.world.machine("n2").record.restarts == 1

    story.settle()

    assert (story.running, story.world.machine("n2").record.restarts) == (["b-r0"], 0)


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


@pytest.mark.parametrize(
    ("mode", "phase"), [("in-place", Phase.QUIESCE), ("in-place", Phase.SWITCH), ("across", Phase.SWITCH)]
)
def test_the_traffic_moves_only_after_another_guard_has_the_journal(mode: str, phase: Phase) -> None:
    story = Story.of(mode).until(phase)
    leader = story.world.leader
    copies = [machine.record.copy for machine in story.world.machines]
    assert leader.journal not in copies
    fleet = story.world.fleet(leader)
    own = replace(fleet.reports["n1"], revision=leader.journal.revision)

    assert not isinstance(step(leader.journal, fleet), SwitchTraffic)
    assert not isinstance(step(leader.journal, replace(fleet, reports={**fleet.reports, "n1": own})), SwitchTraffic)


def test_a_load_that_its_guard_watches_may_take_hours_and_not_for_ever() -> None:
    story = Story.of("in-place").until(Phase.LOAD)
    while story.world.fleet(story.world.leader).reports["n2"].adopted < story.journal.revision:
        assert story.step()
    assert story.world.fleet(story.world.leader).reports["n2"].engine("b-r0").state is EngineState.LOADING
    fleet = story.world.fleet(story.world.leader)

    assert step(story.journal, replace(fleet, waited_s=3 * 3600.0)) is None
    effect = step(story.journal, replace(fleet, waited_s=LONG))
    assert isinstance(effect, WriteJournal)
    assert effect.journal.swap
    assert (effect.journal.swap.reverting, effect.journal.swap.why) == (True, "no progress in phase 'wait until ready'")


@pytest.mark.local
def test_a_release_that_is_deployed_again_while_it_stops_ends_first_and_starts_anew() -> None:
    story = Story.of("beside").until(Phase.LOAD)
    swap = story.journal.swap
    assert swap is not None
    story.operator("cancel")
    assert "b-r0" in story.running, "its guard has not received the order yet"

    assert story.ask(lambda name, revision: Deploy(name, revision, swap.target, Mode.BESIDE))
    assert story.world.fleet(story.world.leader).reports["n2"].engine("b-r0").state.running
    explored = explore(story.world, faults_=1, intents=0)

    assert explored.ends
    story.until(Phase.START)
    assert "b-r0" not in story.running, "what ends does not count as a start"
    assert story.settle().journal.active == swap.target
    assert story.world.machine("n2").record.key("b-r0") != swap.key


@pytest.mark.local
def test_a_warm_release_that_moves_to_another_node_serves_there_and_stops_where_it_was() -> None:
    story = Story.of("across").until(Phase.RETIRE)
    moved = deployment("a", Slot.BLUE, "n1")
    assert story.ask(lambda name, revision: Deploy(name, revision, moved, Mode.ACROSS))

    explored = explore(story.world, faults_=1, intents=0)

    assert explored.states > 1000
    assert story.settle().journal.active == moved
    running = [(machine.name, engine.container) for machine, engine in story.world.engines() if engine.running]
    assert (running, story.journal.stopped) == ([("n1", "a-r0")], ())


def test_a_stop_without_releases_waits_as_long_for_the_gateway() -> None:
    """So after a rebuild that has given up the node of the only release."""
    story = Story.of("in-place").settle().operator("stop").fault("HAProxy stalls")
    fleet, bare = story.world.fleet(story.world.leader), story.journal.changed(active=None, previous=None)

    assert bare.deployments == ()
    assert step(bare, fleet) is None
    assert isinstance(step(bare, replace(fleet, waited_s=LONG)), WriteJournal)


def test_a_stop_ends_once_the_gateway_can_be_read_and_needs_an_operator_until_then() -> None:
    story = Story.of("in-place").settle().operator("stop").fault("HAProxy stalls")
    fleet = story.world.fleet(story.world.leader)

    effect = step(story.journal, replace(fleet, waited_s=LONG))

    assert step(story.journal, fleet) is None
    assert isinstance(effect, WriteJournal)
    assert effect.journal.trouble == "the gateway cannot be read; the service is not stopped"
    assert step(effect.journal, replace(fleet, waited_s=LONG)) is None
    assert story.settle().running == []


def test_the_cause_of_a_failed_start_is_named_before_its_consequences() -> None:
    story = Story.of("in-place").until(Phase.VERIFY)
    fleet, swap = story.world.fleet(story.world.leader), story.journal.swap
    assert swap is not None
    stopped = EngineReport("b-r0", EngineState.STOPPED, swap.key, Answer.NO, swap.key, "out of memory")
    engines = (stopped, replace(stopped, problem=""), replace(stopped, problem="", state=EngineState.HEALTHY))
    reports = [replace(fleet.reports["n2"], engines=(engine,)) for engine in engines]

    causes = [failure(story.journal, swap, replace(fleet, reports={"n2": report})) for report in reports]

    assert causes == ["n2: out of memory", "n2: b-r0 ended", "n2: b-r0 failed its checks"]


def needs(story: Story) -> str:
    """Return what the leader writes once the bound of this wait has passed."""
    fleet = replace(story.world.fleet(story.world.leader), waited_s=LONG)
    effect = step(story.journal, fleet)
    assert isinstance(effect, WriteJournal)
    assert effect.journal.swap == story.journal.swap
    return effect.journal.trouble


def test_a_return_that_cannot_stop_the_traffic_needs_an_operator() -> None:
    story = Story.of("in-place").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.QUIESCE).fault("HAProxy stalls")

    assert needs(story) == "no progress in phase 'stop traffic'"


def test_a_restart_that_cannot_stop_the_traffic_needs_an_operator() -> None:
    story = Story.of("pair in-place").settle().fault("b-r1 is stopped").until(Phase.QUIESCE).fault("HAProxy stalls")

    assert needs(story) == "no progress in phase 'stop traffic'"


@pytest.mark.parametrize("mode", ["in-place", "pair in-place"])
def test_a_release_that_does_not_answer_is_restarted_once_the_watch_finds_it_dead(mode: str) -> None:
    story = Story.of(mode).settle()
    starts = story.journal.starts
    story.fault("b-r0 is hung")
    while not any(machine.found for machine in story.world.machines):
        assert story.journal.starts == starts
        assert story.step()
    story.settle()

    assert (story.journal.trouble, story.journal.starts, story.world.gateway.traffic) == ("", starts + 1, "b")


def test_a_release_that_answers_is_not_restarted_although_the_watch_finds_it_dead() -> None:
    story = Story.of("in-place").settle()
    journal, fleet = story.journal, story.world.fleet(story.world.leader)
    report = fleet.reports["n2"]
    engines = tuple(replace(engine, dead="no step for 300 s") for engine in report.engines)
    found = replace(fleet, reports={**fleet.reports, "n2": replace(report, engines=engines)})

    assert step(journal, found) is None


@pytest.mark.parametrize("mode", ["in-place", "pair in-place"])
def test_a_release_that_is_dead_after_each_restart_waits_for_an_operator(mode: str) -> None:
    story = Story.of(mode).settle()
    starts = story.journal.starts
    story.hang("b-r0").settle()

    assert story.journal.starts == starts + RESTARTS
    assert story.journal.trouble


@pytest.mark.parametrize("mode", ["beside", "across"])
def test_a_warm_release_gets_the_traffic_of_one_that_answers_garbage(mode: str) -> None:
    story = Story.of(mode).until(Phase.RETIRE).fault("b-r0 is wrong").settle()

    assert (story.world.gateway.traffic, story.running, story.journal.trouble) == ("a", ["a-r0"], "")


def test_a_release_that_answers_garbage_keeps_running_and_needs_an_operator() -> None:
    story = Story.of("in-place").settle()
    starts = story.journal.starts
    story.fault("b-r0 is wrong").settle()

    assert (story.running, story.journal.starts) == (["b-r0"], starts)
    assert story.journal.trouble == "b answers garbage: garbled"

    assert story.become("b-r0", Health.GOOD).settle().journal.trouble == ""


def test_a_pair_whose_rank_ends_at_the_switch_of_its_restart_serves_again() -> None:
    story = Story.of("pair in-place").settle().fault("b-r1 is stopped").until(Phase.SWITCH)
    story.fault("b-r1 is stopped").settle()

    assert (story.journal.trouble, story.running) == ("", ["b-r0", "b-r1"])


def test_a_pair_that_ends_after_each_restart_waits_for_an_operator() -> None:
    story = Story.of("pair in-place").settle()
    for _ in range(RESTARTS):
        story.fault("b-r1 is stopped").until(Phase.SWITCH)
        while story.journal.swap:
            assert story.step()

    story.fault("b-r1 is stopped").settle()

    assert story.journal.trouble == "b does not answer"


def test_an_engine_that_computes_gets_the_traffic_of_an_empty_gateway_once_it_answers() -> None:
    story = Story.of("in-place").settle()
    story.world = replace(story.world, gateway=Gateway("n1"), touched=True)
    story.become("b-r0", Health.BUSY)
    while story.step():
        pass
    assert story.world.gateway.traffic == ""

    assert story.become("b-r0", Health.GOOD).settle().world.gateway.traffic == "b"


def test_a_service_needs_an_operator_until_it_answers() -> None:
    story = Story.of("in-place").settle().stop_by_hand("b-r0").settle()
    story.become("b-r0", Health.BUSY)
    while story.step():
        pass
    assert story.journal.trouble == "b-r0 was stopped by hand"

    assert story.become("b-r0", Health.GOOD).settle().journal.trouble == ""


def test_a_new_gateway_sends_nothing_to_a_release_that_hangs() -> None:
    story = Story.of("across").until(Phase.LOAD).fault("a-r0 is hung").fault("loss of n1").rebuild()
    while story.step():
        traffic = story.world.gateway.active
        assert traffic is None or story.world.serves(traffic) is Answer.YES


@pytest.mark.parametrize("mode", ["in-place", "pair in-place"])
def test_a_release_that_serves_in_between_has_the_same_budget_on_one_node_and_on_several(mode: str) -> None:
    story = Story.of(mode).settle()
    ranks = story.running
    for _ in range(RESTARTS):
        assert story.fault(f"{ranks[-1]} is stopped").settle().running == ranks

    assert story.fault(f"{ranks[-1]} is stopped").settle().journal.trouble == "b does not answer"


def test_what_an_earlier_start_reported_does_not_fail_this_one() -> None:
    story = Story.of("in-place").until(Phase.VERIFY)
    fleet, swap = story.world.fleet(story.world.leader), story.journal.swap
    assert swap is not None
    engines = (
        EngineReport("b-r0", EngineState.STOPPED, "earlier", problem="out of memory"),
        EngineReport("b-r0", EngineState.HEALTHY, swap.key, Answer.NO, "earlier"),
        EngineReport("b-r0", EngineState.HEALTHY, swap.key, Answer.YES, "earlier"),
    )
    adopted = replace(fleet.reports["n2"], adopted=story.journal.revision)
    views = [replace(fleet, reports={"n2": replace(adopted, engines=(engine,))}) for engine in engines]

    assert [failure(story.journal, swap, view) for view in views] == ["", "", ""]
    assert [proven(story.journal, swap, view) for view in views[1:]] == [Answer.LATER, Answer.LATER]


def test_a_return_between_two_releases_that_run_restarts_none_of_them() -> None:
    story = Story.of("across").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.SWITCH)
    swap = story.journal.swap
    assert swap is not None
    assert swap.reverting

    assert failure(story.journal, swap, FleetState(gateway=gateway_view(a=Answer.NO))) == ""


def test_a_gateway_that_was_restored_sends_nothing_to_a_stopped_service() -> None:
    story = Story.of("in-place").settle()
    before = story.world.gateway
    story.operator("stop").settle()
    story.world = replace(story.world, gateway=before)

    assert story.settle().world.gateway.traffic == ""


@pytest.mark.parametrize("phase", [Phase.SWITCH, Phase.BAKE])
@pytest.mark.parametrize("old", [Answer.NO, Answer.UNKNOWN])
def test_a_new_release_that_fails_is_left_only_for_an_old_one_that_answers(phase: Phase, old: Answer) -> None:
    story = Story.of("across").until(phase)
    swap = story.journal.swap
    assert swap is not None

    both, one = (FleetState(gateway=gateway_view(a=answer, b=Answer.NO)) for answer in (old, Answer.YES))

    assert (failure(story.journal, swap, both), failure(story.journal, swap, one)) == ("", "b does not answer")


@pytest.mark.parametrize(
    ("world", "text"),
    [
        ("across", "b does not answer correctly: questions: only 2 of 3 answers are right"),
        ("in-place", "b does not answer correctly: /v1/chat/completions: no answer within 10 s"),
    ],
)
def test_the_reason_of_a_return_has_what_failed(world: str, text: str) -> None:
    story = Story.of(world).until(Phase.BAKE)
    swap = present(story.journal.swap)
    view = replace(
        gateway_view("b", a=Answer.YES, b=Answer.NO), failures={Slot.GREEN: text.partition("correctly: ")[2]}
    )

    why = failure(story.journal, swap, FleetState(gateway=view))
    events = [event.text for event in narrate(story.journal, story.journal.reverted(why))]

    assert why == text
    assert events[0] == f"{text}; rolling back"


def test_a_return_that_is_tried_again_has_one_reason() -> None:
    """Each new text would be a new revision of the journal, at every look."""
    story = Story.of("in-place").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.SWITCH)
    swap = present(story.journal.swap)
    view = replace(gateway_view(a=Answer.NO), failures={Slot.BLUE: "HTTP 503: 'request 4711'"})

    assert failure(story.journal, swap, FleetState(gateway=view)) == "a does not answer"


def test_a_return_keeps_the_release_that_failed_no_longer_than_it_must() -> None:
    story = Story.of("beside").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.RETIRE)
    fleet = replace(story.world.fleet(story.world.leader), sampled_s=0.0)

    effect = step(story.journal, fleet)

    assert isinstance(effect, WriteJournal)
    assert effect.journal.swap is None


def test_requests_are_cut_after_their_time_and_those_that_nobody_counts_never() -> None:
    old = deployment("a", Slot.BLUE, "n2")
    counted, uncounted = GatewayView(slots={Slot.BLUE: "a"}, open={Slot.BLUE: 1}), GatewayView()

    assert drained(old, FleetState(gateway=counted)) is Answer.LATER
    assert drained(old, FleetState(gateway=counted, sampled_s=LONG)) == CutRequests(old)
    assert drained(old, FleetState(gateway=uncounted, sampled_s=LONG)) is Answer.UNKNOWN


def test_an_old_release_whose_container_was_removed_counts_as_stopped() -> None:
    story = Story.of("in-place").until(Phase.FREE)
    while story.running:
        assert story.step()
    machine = story.world.machine("n2")
    story.world = story.world.with_machine(
        replace(machine, engines=tuple(engine for engine in machine.engines if engine.container != "a-r0"))
    )

    assert (story.settle().running, story.journal.trouble) == (["b-r0"], "")


def test_a_slot_with_the_traffic_that_has_lost_its_servers_gets_them_back() -> None:
    story = Story.of("in-place").settle()
    story.world = replace(story.world, gateway=replace(story.world.gateway, slots=()))

    assert story.world.gateway.active is Slot.GREEN
    assert step(story.journal, story.world.fleet(story.world.leader)) == PointSlot(present(story.journal.active))


def test_a_return_starts_its_release_anew_only_until_it_gets_the_traffic() -> None:
    story = Story.of("in-place").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.SWITCH)
    swap = story.journal.swap
    assert swap is not None

    views = [gateway_view(active, a=Answer.NO) for active in ("a", "")]

    assert [failure(story.journal, swap, FleetState(gateway=view)) for view in views] == ["", "a does not answer"]


def test_a_deploy_after_a_failed_one_is_judged_by_what_its_own_orders_lead_to() -> None:
    """The guard has not received the revert yet, so the leader still knows the old report."""
    story = Story.of("in-place").fault("full disk on n2")
    target = present(story.journal.swap).target
    while story.journal.swap:
        assert story.step()
    story.world = story.world.with_machine(replace(story.world.machine("n2"), full=False))

    assert story.ask(lambda name, revision: Deploy(name, revision, target, Mode.IN_PLACE))
    assert story.world.fleet(story.world.leader).reports["n2"].engine("b-r0").problem == "no space left on device"

    assert step(story.journal, story.world.fleet(story.world.leader)) is None
    assert story.settle().journal.active == target
