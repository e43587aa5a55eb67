"""After one fault whose cause is gone, a release serves and no operator is needed: each fault that once broke this."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap import effects as act
from sparkops.swap.effects import CutRequests, WriteJournal
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView, Report
from sparkops.swap.follower import Local, Record, reconcile
from sparkops.swap.intents import Deploy
from sparkops.swap.journal import HOUR_S, PAUSES_S, RESTARTS, Journal, present
from sparkops.swap.leader import needs_operator, step
from sparkops.swap.model import Answer, Mode, Phase
from tests.swap.simulation.faults import faults
from tests.swap.simulation.scenarios import AGAIN, MODES, deploying, deployment, gateway_view, serving
from tests.swap.simulation.story import Story
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import LONG

ELSEWHERE = deployment("a", Slot.GREEN, "n3")
PAIRS = (("n2", "n3"), ("n3", "n1"))


@pytest.mark.parametrize("name", AGAIN)
def test_the_same_release_serves_again_from_another_node(name: str) -> None:
    story = Story(deploying(name)).settle()

    assert (story.running, story.journal.active, story.world.gateway.active) == (["a-r0"], ELSEWHERE, Slot.GREEN)


def test_a_release_that_serves_moves_to_another_node() -> None:
    story = Story(serving(MODES["across"][0]))

    assert story.ask(lambda name, revision: Deploy(name, revision, ELSEWHERE, Mode.ACROSS))

    assert (story.settle().journal.active, story.armed) == (ELSEWHERE, ["a-r0"])


def test_a_pair_that_serves_moves_to_other_nodes_one_of_them_shared() -> None:
    first, moved = (deployment("a", slot, *nodes, claim=1.0) for slot, nodes in zip(Slot, PAIRS, strict=True))
    story = Story(serving(first))

    assert story.ask(lambda name, revision: Deploy(name, revision, moved, Mode.BESIDE))

    assert (story.settle().journal.active, sorted(story.armed)) == (moved, ["a-r0", "a-r1"])


def test_a_slot_that_has_the_traffic_is_not_given_to_a_first_release() -> None:
    story = Story(serving(MODES["across"][0])).fault("a-r0 is hung")
    leader = story.world.leader
    story.world = story.world.with_leader(replace(leader, journal=replace(leader.journal, trouble="a does not answer")))

    assert not story.deploy(Mode.FIRST, "n3", slot=Slot.BLUE)
    assert story.deploy(Mode.FIRST, "n3", slot=Slot.GREEN)


@pytest.mark.parametrize("mode", ["in-place", "pair in-place"])
def test_a_release_whose_stop_has_begun_is_started_again_before_it_gets_the_traffic(mode: str) -> None:
    story = Story.of(mode).until(Phase.FREE)
    while not any(engine.ending for _, engine in story.world.engines()):
        assert story.step()

    story.operator("cancel").settle()

    old = ["a-r0", "a-r1"] if "pair" in mode else ["a-r0"]
    assert (story.running, story.journal.swap, story.journal.trouble) == (old, None, "")


def test_an_engine_that_was_started_again_is_restarted_when_it_crashes_later() -> None:
    story = Story.of("in-place").until(Phase.FREE)
    while not any(engine.ending for _, engine in story.world.engines()):
        assert story.step()
    story.operator("cancel").settle()

    assert story.fault("a-r0 is stopped").settle().running == ["a-r0"]


def test_a_swap_stops_nothing_while_a_lease_would_keep_the_new_release_from_starting() -> None:
    story = Story.of("in-place").fault("a lease on n2")
    while (transition := story.step()) and story.world.machine("n2").leased:
        assert story.world.gateway.active is Slot.BLUE
        assert story.running == ["a-r0"]

    assert transition
    assert story.settle().running == ["b-r0"]


def test_a_lease_that_does_not_end_is_the_reason_why_a_swap_is_given_up() -> None:
    story = Story.of("in-place").fault("a lease on n2")
    while not any(report.lease and report.follows(story.journal) for report in story.world.leader.reports):
        assert story.step()

    effect = step(story.journal, replace(story.world.fleet(story.world.leader), waited_s=LONG))

    assert isinstance(effect, WriteJournal)
    assert effect.journal.swap is None
    assert effect.journal.outcomes[-1].why == "n2: no engine loads during the work"


def test_nothing_new_starts_on_a_cordoned_node_and_what_serves_there_is_restarted() -> None:
    story = Story.of("across")
    node = next(present(story.journal.swap).target.ranks).node
    story.fault(f"a cordon on {node}")
    while (transition := story.step()) and story.world.machine(node).cordoned:
        assert story.running == ["a-r0"]
    assert transition, "the swap waits for the end of the cordon"

    story.settle().fault(f"a cordon on {node}").fault("b-r0 is stopped")
    while "b-r0" not in story.running:
        assert story.world.machine(node).cordoned
        assert story.step()


def test_a_start_that_docker_refused_is_none_and_is_retried() -> None:
    story = Story.of("in-place").settle().fault("b-r0 is stopped").fault("Docker on n2 refuses to start")
    while not story.world.machine("n2").refused:
        assert story.step()
    assert story.world.machine("n2").record.restarts == 0

    story.settle()

    assert (story.running, story.world.machine("n2").record.restarts) == (["b-r0"], 1)


def test_a_node_whose_docker_hangs_is_unknown_and_a_swap_waits_for_it() -> None:
    story = Story.of("in-place").until(Phase.FREE).fault("Docker on n2 hangs")
    while any(report.node == "n2" for report in story.world.leader.reports):
        assert story.running == ["a-r0"]
        assert story.step()

    story.settle()

    assert (story.running, [outcome.result for outcome in story.journal.outcomes][-1]) == (["b-r0"], "done")


def test_a_start_that_happened_without_a_reply_has_failed_and_is_stopped_for_the_old_release() -> None:
    story = Story.of("in-place").until(Phase.START)
    while story.world.machine("n2").pending != "b-r0":
        assert story.step()

    story.fault("Docker on n2 hangs: docker start b-r0").settle()

    assert (story.running, story.journal.outcomes[-1].why) == (["a-r0"], "n2: refused")


@pytest.mark.parametrize(("created", "serves", "why"), [("happens", "b-r0", ""), ("fails", "a-r0", "n2: no reply")])
def test_a_creation_without_a_reply_is_what_docker_shows_later(created: str, serves: str, why: str) -> None:
    story = Story.of("in-place")
    while not any(label.startswith("Docker on n2 hangs: docker create") for label, _ in faults(story.world)):
        assert story.step()

    story.fault(f"Docker on n2 hangs: docker create --name=b-r0, which {created}").settle()

    assert (story.running, story.journal.outcomes[-1].why) == ([serves], why)


def test_a_return_waits_for_a_device_that_is_missing() -> None:
    story = Story.of("in-place", turns="wrong").until(Phase.VERIFY)
    while not (story.journal.swap and story.journal.swap.reverting):
        assert story.step()
    story.fault("Docker on n2 refuses to start")
    key = story.journal.swap.key
    while (swap := story.journal.swap) and story.step():
        assert (swap.key, story.journal.restarts, story.journal.trouble) == (key, 0, "")

    assert story.settle().running == ["a-r0"]


def test_a_first_deploy_waits_for_what_is_unknown_since_nothing_else_serves() -> None:
    story = Story.of("first").until(Phase.START)
    fleet = replace(story.world.fleet(story.world.leader), reports={}, waited_s=LONG)

    effect = step(story.journal, fleet)

    assert isinstance(effect, WriteJournal)
    assert (effect.journal.swap is None, effect.journal.trouble) == (False, "no progress in phase 'start'")


def test_a_new_release_that_docker_refuses_to_start_has_failed() -> None:
    story = Story.of("beside").until(Phase.START)
    while "b-r0" not in story.world.machine("n2").pending:
        assert story.step()

    story.fault("Docker on n2 refuses to start").settle()

    assert (story.running, story.journal.outcomes[-1].why) == (["a-r0"], "n2: refused")


def test_a_paused_container_is_not_started_by_order_or_boot_record() -> None:
    rank = next(deployment("a", Slot.BLUE, "n2").ranks)
    local = Local("b", Record(armed=rank, boot="b"), {rank.container: EngineState.STOPPED}, free_gib=100.0)

    assert reconcile(None, local) == act.MarkRestart(rank.container)
    assert reconcile(None, replace(local, paused=frozenset({rank.container}))) is None


def test_an_operator_is_told_while_the_gateway_refuses_changes_and_needed_no_more_afterwards() -> None:
    story = Story.of("in-place").until(Phase.SWITCH).fault("the gateway refuses changes")
    while (refused := story.world.leader.tried) is None:
        assert story.step()
    late_fleet = replace(story.world.fleet(story.world.leader), tried_s=LONG, why="No space left on device")

    effect = step(story.journal, late_fleet)

    assert isinstance(effect, WriteJournal)
    assert needs_operator(effect.journal, late_fleet) == f"{refused}: No space left on device"
    assert (story.settle().running, story.journal.trouble) == (["b-r0"], "")


def test_requests_that_a_cut_does_not_end_have_a_bound() -> None:
    story = Story.of("in-place").until(Phase.QUIESCE)
    swap = story.journal.swap
    assert swap is not None
    assert swap.source is not None
    slots = {Slot.BLUE: "a"}
    view = GatewayView(slots=slots, answers={Slot.BLUE: Answer.YES}, open={Slot.BLUE: 1}, held=swap.key)
    fleet = replace(story.world.fleet(story.world.leader), gateway=view, sampled_s=LONG)
    cut = CutRequests(swap.source)

    assert step(story.journal, fleet) == cut
    assert step(story.journal, replace(fleet, tried=cut, tried_s=0.5)) == cut
    effect = step(story.journal, replace(fleet, tried=cut, tried_s=LONG))
    assert isinstance(effect, WriteJournal)
    assert effect.journal.swap
    assert effect.journal.swap.reverting


@pytest.mark.parametrize(("phase", "bound_s"), [(Phase.LOAD, 4 * 3600.0), (Phase.VERIFY, 3600.0)])
def test_what_its_guard_watches_has_a_bound(phase: Phase, bound_s: float) -> None:
    journal = Story.of("in-place").until(phase).journal
    swap = journal.swap
    assert swap is not None
    state = EngineState.LOADING if phase is Phase.LOAD else EngineState.HEALTHY
    engine = EngineReport("b-r0", state, swap.key)
    report = Report("n2", "b", 1, journal.revision, journal.revision, (engine,))
    fleet = FleetState({"n2": report}, GatewayView(slots={Slot.GREEN: "b", Slot.BLUE: "a"}, held=f"{swap.key}+"))
    fleet = replace(fleet, contacts=frozenset({"n2"}))

    assert step(journal, replace(fleet, waited_s=bound_s - 1)) is None
    effect = step(journal, replace(fleet, waited_s=bound_s))

    assert isinstance(effect, WriteJournal)
    assert effect.journal.swap
    assert (effect.journal.swap.reverting, effect.journal.swap.why) == (True, f"no progress in phase '{phase}'")


def test_a_drain_while_neither_release_answers_has_a_bound() -> None:
    journal = Story.of("across").until(Phase.DRAIN).journal
    view = replace(gateway_view("b", a=Answer.NO, b=Answer.NO), open={Slot.BLUE: 1, Slot.GREEN: 0})
    engines = (EngineReport("a-r0", EngineState.HEALTHY),)
    reports = {"n2": Report("n2", "b", 1, journal.revision, journal.revision, engines)}
    fleet = FleetState(reports, view, frozenset({"n2"}))

    assert step(journal, fleet) is None
    effect = step(journal, replace(fleet, waited_s=LONG))

    assert isinstance(effect, WriteJournal)
    assert effect.journal.trouble == "no progress in phase 'drain'"


def test_requests_in_a_pair_whose_rank_ended_are_cut_at_once() -> None:
    """Nothing answers them: rank 0 waits for the other one."""
    story = Story.of("pair in-place").settle().fault("b-r1 is stopped")
    while not (story.journal.swap and story.journal.swap.phase is Phase.QUIESCE):
        assert story.step()
    pair = story.journal.active
    assert pair is not None
    view = GatewayView(slots={pair.slot: pair.release}, answers={pair.slot: Answer.NO}, open={pair.slot: 3})
    view = replace(view, held=story.journal.swap.key)

    assert step(story.journal, replace(story.world.fleet(story.world.leader), gateway=view)) == CutRequests(pair)


def test_a_rank_that_an_operator_stopped_stays_down_and_is_the_reason() -> None:
    story = Story.of("pair in-place").settle()
    starts = story.world.starts

    story.stop_by_hand("b-r1").settle()

    assert (story.running, story.world.starts) == (["b-r0"], starts)
    assert story.journal.trouble == "b-r1 was stopped by hand"


def test_an_operator_is_needed_until_a_wait_is_known_again_and_within_its_bound() -> None:
    journal = Story.of("in-place").until(Phase.LOAD).journal
    swap = journal.swap
    assert swap is not None
    engine, old = EngineReport("b-r0", EngineState.LOADING, swap.key), EngineReport("a-r0", EngineState.LOADING)
    report = Report("n2", "b", 1, journal.revision, journal.revision, (engine, old))
    view = GatewayView(slots={Slot.GREEN: "b", Slot.BLUE: "a"})
    loads = FleetState({"n2": report}, view, frozenset({"n2"}))
    journal = replace(journal, trouble="no progress in phase 'wait until ready'")

    effect = step(journal, replace(loads, waited_s=swap.lasts_s - 1))

    assert isinstance(effect, WriteJournal)
    assert effect.journal == replace(journal, trouble="", revision=journal.revision + 1)
    assert step(journal, replace(loads, waited_s=swap.lasts_s)) is None
    assert step(journal, replace(loads, reports={})) is None, "a leader that restarts has waited for no time yet"


def test_an_operator_is_needed_no_more_once_a_stopped_service_is_at_rest() -> None:
    journal = Journal("chat", "n1", ("n2",), trouble="gateway switch down: No space left on device")
    fleet = FleetState({"n2": Report("n2", "b", 1, 0, 0)}, GatewayView(), frozenset({"n2"}))

    effect = step(journal, fleet)

    assert isinstance(effect, WriteJournal)
    assert effect.journal.trouble == ""


@pytest.mark.parametrize("mode", ["in-place", "pair in-place"])
def test_a_release_that_failed_its_restarts_serves_an_hour_later(mode: str) -> None:
    """A return on one node, and the restart of a pair: no start succeeds until its cause is gone."""
    story = Story.of(mode)
    if mode == "in-place":
        story.until(Phase.BAKE).fault("b-r0 is hung").until(Phase.LOAD)
    else:
        story.settle().fault("b-r1 is stopped").until(Phase.LOAD)
    head = "a-r0" if mode == "in-place" else "b-r0"
    while head not in story.running:
        assert story.step()
    story.fault(f"{head} is hung").settle()
    assert (story.journal.trouble, story.journal.restarts) == ("n2: stalled", RESTARTS)

    machine = story.world.machine("n2")
    mended = machine.holding(replace(machine.existing(head), turns=Health.GOOD, broken=False))
    story.world = story.world.with_machine(mended)
    assert story.settle().journal.trouble == "n2: stalled", "the budget of this hour is spent"

    story.rest().settle()

    assert (head in story.running, story.journal.trouble, story.journal.swap) == (True, "", None)
    assert story.journal.restarts == (0 if mode == "in-place" else 1), "a promoted release has the whole budget"


@pytest.mark.parametrize("phase", [None, Phase.LOAD], ids=["serves", "restarts"])
def test_restarts_of_a_pair_are_as_far_apart_as_those_of_the_boot_record(phase: Phase | None) -> None:
    story = Story.of("pair in-place").settle().fault("b-r1 is stopped")
    while story.running != ["b-r0"]:
        assert story.step()
    while phase and not (story.journal.swap and story.journal.swap.phase is phase):
        assert story.step()
    if phase:
        while story.running != ["b-r0", "b-r1"]:
            assert story.step()
        story.fault("b-r1 is stopped")
    while not isinstance(effect := step(story.journal, story.world.fleet(story.world.leader)), WriteJournal):
        assert story.step()
    due = story.world.fleet(story.world.leader)

    def restarts(count: int, rested_s: float) -> bool:
        journal = replace(story.journal, restarts=count)
        effect = step(journal, replace(due, rested_s=rested_s))
        return isinstance(effect, WriteJournal) and effect.journal.restarts == count + 1

    assert restarts(0, 0.0)
    for count, pause_s in enumerate(PAUSES_S, 1):
        assert (restarts(count, pause_s - 1), restarts(count, pause_s)) == (False, True)
    assert not restarts(RESTARTS, HOUR_S - 1)
    whole = step(replace(story.journal, restarts=RESTARTS), replace(due, rested_s=HOUR_S))
    assert isinstance(whole, WriteJournal)
    assert whole.journal.restarts == 0
    assert effect.journal.trouble == ""


def test_a_rebuilt_gateway_gives_no_request_to_a_program_that_took_the_port_of_a_release_that_ended() -> None:
    """Law 6 holds meanwhile: the leader knew that the release had failed, and gave it the traffic back for one turn."""
    story = Story.of("in-place").until(Phase.BAKE).copied()

    story.fault("loss of n1").fault("the port of b-r0 is taken").rebuild().settle()

    assert story.world.gateway.traffic == "a"


def test_a_rebuilt_gateway_gives_the_traffic_to_the_old_release_if_the_new_one_answers_garbage() -> None:
    story = Story.of("across").until(Phase.RETIRE).copied()

    story.fault("loss of n1").fault("b-r0 is wrong")
    assert story.step()
    story.rebuild().settle()

    assert story.world.gateway.traffic == "a"


def test_an_operator_is_needed_for_garbage_also_while_its_guard_is_silent() -> None:
    story = Story.of("first").settle().fault("b-r0 is wrong").settle()
    assert "answers garbage" in story.journal.trouble

    story.fault("Docker on n2 hangs")
    while story.step():
        pass

    assert "answers garbage" in story.journal.trouble
