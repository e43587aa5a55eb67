"""Single decisions that a run rarely reaches, or only words or a bound show: each from the values that it needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import ArmBoot, CutRequests, MarkStop, SwitchTraffic, WriteJournal
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView, Report, why_deposed
from sparkops.swap.follower import Local, Record, reconcile, report, worker_loaded
from sparkops.swap.intents import Deploy, Forget, Refused, accept, fails, kept
from sparkops.swap.journal import OUTCOMES, PAUSES_S, RESTARTS, Journal, Swap, present
from sparkops.swap.leader import needs_operator, step
from sparkops.swap.model import Answer, Deployment, Limits, Mode, Phase
from sparkops.swap.orders import Armed, RankOrder, Want, hold, load_ahead, order, traffic, unpromoted
from sparkops.swap.phases import RULES
from sparkops.swap.rebuild import given_up, rebuilt
from tests.swap.simulation.scenarios import SLOTS, deployment, gateway_view
from tests.swap.simulation.world import LONG

OLD, NEW = deployment("a", Slot.BLUE, "n2"), deployment("b", Slot.GREEN, "n2")
BESIDE = deployment("b", Slot.GREEN, "n3")
PAIR = deployment("a", Slot.BLUE, "n2", "n3")
SERVES = Journal("chat", "n1", ("n2", "n3"), revision=7, active=OLD)
UP, LOADS, DOWN, ABSENT = EngineState.HEALTHY, EngineState.LOADING, EngineState.STOPPED, EngineState.ABSENT


def swap(mode: Mode, phase: Phase, target: Deployment = NEW, first: Deployment | None = OLD) -> Journal:
    """The journal of a swap in a phase."""
    journal = replace(SERVES, active=first).begun("i", mode, target, automatic=True)
    while present(journal.swap).phase is not phase:
        journal = journal.advanced()
    return journal


def restart(phase: Phase, first: Deployment = OLD) -> Journal:
    """The journal of a restart by the leader."""
    journal = replace(SERVES, active=first).restarted("dead")
    while present(journal.swap).phase is not phase:
        journal = journal.advanced()
    return journal


def key(journal: Journal) -> str:
    return present(journal.swap).key


def view(active: str = "a", **answers: Answer) -> GatewayView:
    """The gateway with both releases, which answer if nothing else is said, without open requests."""
    known = gateway_view(active, **{**dict.fromkeys(SLOTS, Answer.YES), **answers})
    return replace(known, open=dict.fromkeys(known.slots, 0))


def waiting(journal: Journal, blue: Answer = Answer.YES) -> GatewayView:
    """The gateway while requests wait for the release that starts."""
    request_hold = hold(journal)
    return replace(view("", a=blue), held=request_hold.mark if request_hold else "")


def fleet(journal: Journal, *engines: EngineReport, gateway: GatewayView | None = None, **known: object) -> FleetState:
    """The fleet where every guard follows the journal and reports those of these engines that are on its node."""
    places = {rank.container: rank.node for item in journal.deployments for rank in item.ranks}
    at = journal.revision
    reports = {
        node: Report(node, "boot", 1, at, at, tuple(found for found in engines if places[found.container] == node))
        for node in ("n1", "n2", "n3")
    }
    return FleetState(reports, gateway, frozenset({"n2", "n3"}), **known)  # type: ignore[arg-type]


def engine(container: str, state: EngineState, **known: object) -> EngineReport:
    return EngineReport(container, state, **known)  # type: ignore[arg-type]


def written(journal: Journal, known: FleetState) -> Journal:
    """The journal that the leader writes next."""
    effect = step(journal, known)
    assert isinstance(effect, WriteJournal), effect
    return effect.journal


# What a leader does


def test_a_leader_that_lost_its_journal_says_so_although_nobody_confirms_it() -> None:
    newer = Report("n2", "boot", 1, SERVES.revision + 1)

    assert needs_operator(SERVES, FleetState({"n2": newer})) == why_deposed(SERVES)


def test_a_pair_with_a_rank_that_has_ended_is_restarted_whatever_answers_on_its_port() -> None:
    pair = replace(SERVES, active=PAIR)

    for gateway in (view(), view("")):
        after = written(pair, fleet(pair, engine("a-r0", UP), engine("a-r1", DOWN), gateway=gateway))
        assert present(after.swap).restarts


def test_a_dead_release_is_restarted_also_if_it_had_answered_garbage() -> None:
    dead = engine("a-r0", UP, dead="no step for 60 s", garbled="one character")

    after = written(SERVES, fleet(SERVES, dead, gateway=view(a=Answer.NO)))

    assert present(after.swap).restarts


def test_a_release_that_answers_gets_the_traffic_whatever_the_watch_finds() -> None:
    garbled = engine("a-r0", UP, garbled="one character")

    assert step(SERVES, fleet(SERVES, garbled, gateway=view(""))) == SwitchTraffic(OLD)


def test_a_rebuilt_gateway_gives_the_traffic_to_what_serves_but_for_a_new_release_that_failed() -> None:
    """Until the switch that is the old one, whatever became of the new one."""
    starting, baking = (swap(Mode.ACROSS, phase, BESIDE) for phase in (Phase.LOAD, Phase.BAKE))
    ended = (engine("b-r0", DOWN, key=key(starting)), engine("b-r0", DOWN, key=key(baking)))

    assert step(starting, fleet(starting, ended[0], gateway=view(""))) == SwitchTraffic(OLD)
    assert step(baking, fleet(baking, engine("b-r0", UP, key=key(baking)), gateway=view(""))) == SwitchTraffic(BESIDE)
    assert isinstance(step(baking, fleet(baking, ended[1], gateway=view(""))), WriteJournal)


def test_clients_of_a_stopped_service_are_told_so_until_it_starts_again() -> None:
    stopping = SERVES.changed(stopping=True)
    offline = stopping.offline()
    starting = offline.begun("i", Mode.FIRST, NEW, automatic=True)
    told = replace(view(""), stopped=True)

    assert step(stopping, fleet(stopping, gateway=view())) == SwitchTraffic(None, stopped=True)
    assert not isinstance(step(offline, fleet(offline, gateway=told)), SwitchTraffic)
    assert step(starting, fleet(starting, gateway=told)) == SwitchTraffic(None)
    cut = starting.changed(stopping=True)  # in the middle of a swap, by force
    assert not isinstance(step(cut, fleet(cut, gateway=told)), SwitchTraffic)


def test_only_garbage_is_remembered_while_its_guard_is_silent() -> None:
    """Whether a release answers, the gateway shows as well."""
    dumb = SERVES.changed(trouble="a does not answer")
    garbled = SERVES.changed(trouble="a answers garbage: !!!!")
    silent = {"n1": Report("n1", "boot", 1, dumb.revision, dumb.revision, ())}

    assert written(dumb, replace(fleet(dumb, gateway=view()), reports=silent)).trouble == ""
    assert step(garbled, replace(fleet(garbled, gateway=view()), reports=silent)) is None
    assert written(garbled, fleet(garbled, engine("a-r0", UP), gateway=view())).trouble == ""


def test_what_was_tried_before_gives_up_nothing_that_is_due_now() -> None:
    """A change of the gateway that failed for long is due no more: nothing, or another one, is."""
    earlier = SwitchTraffic(NEW)

    assert step(SERVES, fleet(SERVES, engine("a-r0", UP), gateway=view(), tried=earlier, tried_s=LONG)) is None
    due = fleet(SERVES, engine("a-r0", UP), gateway=view(""), tried=earlier, tried_s=LONG)
    assert step(SERVES, due) == SwitchTraffic(OLD)


@pytest.mark.parametrize(("why", "told"), [("", "it changes nothing"), ("no space", "no space")])
def test_a_change_of_the_gateway_that_never_works_is_told_with_its_reason(why: str, told: str) -> None:
    tried = SwitchTraffic(OLD)
    known = fleet(SERVES, engine("a-r0", UP), gateway=view(""), tried=tried, tried_s=LONG, why=why)

    assert written(SERVES, known).trouble == f"{tried}: {told}"


def behind(journal: Journal, known: FleetState, load: str = "embed-r0") -> FleetState:
    """The fleet where another service's engine loads on n2, and this service has waited as long as for an unknown."""
    busy = replace(known, waited_s=present(journal.swap).target.limits.unknown_s)
    return replace(busy, reports={**busy.reports, "n2": replace(busy.reports["n2"], load=load)})


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.START])
def test_a_start_waits_for_another_service_s_load_longer_than_for_the_unknown(phase: Phase) -> None:
    journal = swap(Mode.IN_PLACE, phase)
    old = engine("a-r0", UP if phase is Phase.PREPARE else DOWN)
    gateway = view() if phase is Phase.PREPARE else waiting(journal)
    known = fleet(journal, engine("b-r0", DOWN), old, gateway=gateway)

    assert step(journal, behind(journal, known)) is None
    late = replace(behind(journal, known), waited_s=present(journal.swap).lasts_s)
    after = written(journal, late)
    assert "n2: embed-r0 loads first" in (after.outcomes[-1].why, after.swap.why if after.swap else "")
    if phase is Phase.START:
        assert present(written(journal, behind(journal, known, load="")).swap).reverting


def test_a_load_is_no_reason_to_wait_longer_for_a_guard_that_is_behind() -> None:
    journal = swap(Mode.IN_PLACE, Phase.START)
    known = behind(journal, fleet(journal, engine("b-r0", DOWN), engine("a-r0", DOWN), gateway=waiting(journal)))
    earlier = replace(known.reports["n2"], adopted=journal.revision - 1)

    assert rule(journal, replace(known, reports={**known.reports, "n2": earlier})) is Answer.UNKNOWN


def test_a_load_elsewhere_or_beside_a_release_that_runs_keeps_nothing_back() -> None:
    """Before the traffic stops each container must exist: a load says nothing of that."""
    journal = swap(Mode.IN_PLACE, Phase.PREPARE)
    runs = fleet(journal, engine("b-r0", UP), engine("a-r0", UP), gateway=view())
    absent = fleet(journal, engine("a-r0", UP), gateway=view())

    assert present(written(journal, behind(journal, runs)).swap).phase is Phase.QUIESCE
    assert written(journal, behind(journal, absent)).swap is None, "it was not created within the bound of an unknown"


def test_only_the_first_phase_waits_for_a_lease() -> None:
    waits = swap(Mode.IN_PLACE, Phase.FREE)
    known = fleet(waits, engine("a-r0", UP), gateway=waiting(waits), waited_s=LONG)
    leased = replace(known.reports["n2"], lease="build")

    after = written(waits, replace(known, reports={**known.reports, "n2": leased}))

    assert after.trouble == "no progress in phase 'stop old release'"


def test_a_start_that_is_refused_for_ever_is_the_reason_of_a_wait() -> None:
    waits = restart(Phase.START)
    refused = engine("a-r0", DOWN, key=key(waits), refused=True, problem="no device")

    assert written(waits, fleet(waits, refused, gateway=waiting(waits), waited_s=LONG)).trouble == "n2: no device"


def test_a_stop_is_not_reverted_where_the_gateway_cannot_be_read() -> None:
    stops = swap(Mode.BESIDE, Phase.LOAD).changed(stopping=True)

    after = written(stops, fleet(stops, waited_s=LONG))

    assert (after.trouble, after.swap) == ("the gateway cannot be read; the service is not stopped", stops.swap)


def test_what_failed_of_a_release_is_part_of_the_reason() -> None:
    failing = replace(view(a=Answer.NO), failures={Slot.BLUE: "it said 5"})

    after = written(SERVES, fleet(SERVES, engine("a-r0", UP), gateway=failing, waited_s=LONG))

    assert after.trouble == "a does not answer correctly: it said 5"


def test_a_restart_keeps_one_text_whatever_fails() -> None:
    waits = restart(Phase.SWITCH)
    failing = replace(waiting(waits, Answer.NO), failures={Slot.BLUE: "it said 5"})

    after = written(waits, fleet(waits, engine("a-r0", UP), gateway=failing, rested_s=PAUSES_S[0]))

    assert present(after.swap).why == "a does not answer"


def test_a_refused_start_is_no_failure_of_a_restart() -> None:
    waits = restart(Phase.START)
    refused = engine("a-r0", DOWN, key=key(waits), refused=True, problem="no device")

    assert step(waits, fleet(waits, refused, gateway=waiting(waits))) is None


def test_a_container_that_cannot_be_created_has_failed() -> None:
    begins = swap(Mode.BESIDE, Phase.PREPARE)
    full = engine("b-r0", ABSENT, problem="no space left on device")

    after = written(begins, fleet(begins, engine("a-r0", UP), full, gateway=view()))

    assert (after.swap, after.outcomes[-1].why) == (None, "n2: no space left on device")


@pytest.mark.parametrize("answers", [Answer.YES, Answer.NO])
def test_a_rank_that_ends_after_the_switch_is_the_reason_whatever_the_gateway_says(answers: Answer) -> None:
    bakes = swap(Mode.BESIDE, Phase.BAKE)
    known = fleet(bakes, engine("a-r0", UP), engine("b-r0", DOWN), gateway=view("b", b=answers))

    assert present(written(bakes, known).swap).why == "n2: b-r0 ended"


def test_a_problem_after_the_switch_is_the_reason_and_a_refused_start_is_none() -> None:
    bakes = swap(Mode.BESIDE, Phase.BAKE)
    gateway = view("b")
    taken = engine("b-r0", UP, problem="port 9102 is taken")

    after = written(bakes, fleet(bakes, engine("a-r0", UP), taken, gateway=gateway))

    assert present(after.swap).why == "n2: port 9102 is taken"
    refused = replace(taken, state=DOWN, refused=True)
    assert step(bakes, fleet(bakes, engine("a-r0", UP), refused, gateway=gateway)) is None


# What ends a phase


def rule(journal: Journal, known: FleetState) -> object:
    running = present(journal.swap)
    return RULES[running.phase](journal, running, known)


def test_a_container_that_is_gone_is_at_rest() -> None:
    frees = swap(Mode.IN_PLACE, Phase.FREE)

    assert rule(frees, fleet(frees, engine("a-r0", ABSENT), engine("b-r0", DOWN))) is Answer.YES


@pytest.mark.parametrize(
    ("answers", "state", "due"),
    [
        (Answer.NO, UP, CutRequests(OLD)),
        (Answer.YES, UP, Answer.LATER),
        (Answer.YES, DOWN, CutRequests(OLD)),
        (Answer.UNKNOWN, UP, Answer.LATER),
    ],
)
def test_requests_in_a_release_that_is_dead_or_has_ended_are_cut_at_once(
    answers: Answer, state: EngineState, due: object
) -> None:
    quiesces = restart(Phase.QUIESCE)
    gateway = replace(view("", a=answers), open={Slot.BLUE: 2})

    assert rule(quiesces, fleet(quiesces, engine("a-r0", state), gateway=gateway)) == due


@pytest.mark.parametrize("answers", [Answer.UNKNOWN, Answer.NO])
def test_a_bake_without_an_answer_does_not_last_as_long_as_a_bake(answers: Answer) -> None:
    bakes = swap(Mode.BESIDE, Phase.BAKE)

    assert rule(bakes, fleet(bakes, engine("b-r0", UP), gateway=view("b", b=answers))) is answers


@pytest.mark.parametrize("state", [LOADS, DOWN])
def test_a_pair_is_promoted_whether_it_runs_or_must_be_restarted_as_a_whole(state: EngineState) -> None:
    promotes = swap(Mode.FIRST, Phase.PROMOTE, PAIR, None)
    known = fleet(promotes, engine("a-r0", UP), engine("a-r1", state), gateway=view())
    armed = {node: replace(found, armed=f"a-r{node[1] == '3':d}") for node, found in known.reports.items()}

    assert rule(promotes, replace(known, reports=armed)) is Answer.YES
    assert rule(promotes, known) is Answer.NO, "no boot record names it"
    stale = {node: replace(found, adopted=0) for node, found in armed.items()}
    assert rule(promotes, replace(known, reports=stale)) is Answer.NO, "of an earlier order"


# What a guard is told, and does


@pytest.mark.parametrize(
    ("phase", "want"),
    [
        (Phase.PREPARE, Want.CREATED),
        (Phase.QUIESCE, Want.CREATED),
        (Phase.FREE, Want.STOPPED),
        (Phase.START, Want.RUNNING),
        (Phase.SWITCH, Want.AS_IS),
        (Phase.PROMOTE, Want.AS_IS),
    ],
)
def test_what_is_wanted_of_a_new_release(phase: Phase, want: Want) -> None:
    journal = swap(Mode.IN_PLACE, phase)

    ordered = {found.rank.container: found for found in order(journal, "n2", "boot").ranks}

    assert ordered["b-r0"] == RankOrder(next(NEW.ranks), want, key(journal) if want is Want.RUNNING else "")


def test_nothing_is_armed_on_a_node_without_the_release_and_its_record_stays_while_the_release_returns() -> None:
    assert order(SERVES, "n3", "boot").armed == Armed()
    returns = swap(Mode.ACROSS, Phase.BAKE, BESIDE).reverted("wrong")
    assert order(returns, "n3", "boot").armed is None


def test_the_record_of_a_node_stays_while_the_release_is_on_a_node_that_nobody_knows() -> None:
    assert order(replace(SERVES, peers=("n3",)), "n3", "boot").armed is None
    assert order(replace(SERVES, peers=("n3",), without=frozenset({"n2"})), "n3", "boot").armed == Armed()


def test_a_node_is_about_to_load_until_the_new_release_has_loaded() -> None:
    def nodes(journal: Journal) -> str:
        return "".join(node for node in ("n1", "n2", "n3") if load_ahead(journal, node))

    assert nodes(SERVES) == ""
    for phase in (Phase.PREPARE, Phase.START, Phase.VERIFY):
        journal = swap(Mode.ACROSS, phase, BESIDE)
        assert load_ahead(journal, "n3") == f"the swap of chat to b is in phase '{phase}'"
        assert nodes(journal) == "n2n3", "either release may load"
        assert nodes(journal.changed(trouble="it waits")) == ""
    assert nodes(swap(Mode.ACROSS, Phase.SWITCH, BESIDE)) == "", "the old release still runs"
    assert nodes(swap(Mode.IN_PLACE, Phase.BAKE)) == "n2", "the old release would load again"
    assert nodes(swap(Mode.IN_PLACE, Phase.PROMOTE)) == ""
    assert nodes(swap(Mode.FIRST, Phase.LOAD, first=None)) == "n2"


def test_a_worker_of_the_release_that_serves_has_loaded_while_another_one_loads() -> None:
    loads = swap(Mode.ACROSS, Phase.LOAD, deployment("b", Slot.GREEN, "n1", "n4"), PAIR)

    assert worker_loaded("n3", "a-r1", loads) is Answer.YES
    assert worker_loaded("n4", "b-r1", loads) is Answer.NO


def test_the_release_that_a_return_leaves_is_what_may_be_killed_for_memory() -> None:
    assert [rank.container for rank in unpromoted(swap(Mode.BESIDE, Phase.BAKE))] == ["b-r0"]
    assert [rank.container for rank in unpromoted(returning(Phase.BAKE))] == ["b-r0"]
    assert [*unpromoted(returning(Phase.RETIRE))] == []


def test_nothing_starts_before_what_it_replaces_is_stopped() -> None:
    starts = swap(Mode.IN_PLACE, Phase.START)
    engines = {"a-r0": UP, "b-r0": DOWN}
    local = Local("boot", Record(1, starts, next(OLD.ranks)), engines, free_gib=100.0)

    assert reconcile(order(starts, "n2", "boot"), local) == MarkStop("a-r0")


def test_a_stop_of_an_earlier_boot_is_marked_again() -> None:
    frees = swap(Mode.IN_PLACE, Phase.FREE)
    record = Record(1, frees, next(OLD.ranks), down=frozenset({"a-r0"}), boot="earlier")

    assert reconcile(order(frees, "n2", "boot"), Local("boot", record, {"a-r0": UP})) == MarkStop("a-r0")


@pytest.mark.parametrize(("by_hand", "state", "told"), [(True, DOWN, True), (True, UP, False), (False, DOWN, False)])
def test_an_engine_is_stopped_by_hand_if_an_operator_did_and_it_does_not_run(
    by_hand: bool, state: EngineState, told: bool
) -> None:
    local = Local("boot", engines={"a-r0": state}, by_hand=frozenset({"a-r0"} if by_hand else ()))

    assert report("n2", None, local).engine("a-r0").by_hand is told


def test_another_release_has_the_whole_budget_of_restarts_and_the_same_one_the_rest() -> None:
    old, new = (next(item.ranks) for item in (OLD, NEW))
    record = Record(armed=old, restarts=2)

    assert record.after(ArmBoot(old, alone=True), "boot").restarts == 2
    assert record.after(ArmBoot(new, alone=True), "boot").restarts == 0


# What a journal says


def test_the_release_before_is_the_source_and_after_a_move_the_one_before_it() -> None:
    earlier, moved = deployment("z", Slot.GREEN, "n3"), deployment("a", Slot.GREEN, "n3")

    def before(target: Deployment, previous: Deployment | None, *, reverting: bool = False) -> Deployment | None:
        return Swap("i", Mode.ACROSS, target, OLD, "1.2", Phase.BAKE, reverting=reverting, previous=previous).before

    assert before(NEW, earlier) == OLD
    assert before(moved, earlier) == earlier
    assert before(moved, None) == OLD
    assert before(moved, replace(OLD, slot=Slot.GREEN)) == OLD, "the same release is none before it"
    assert before(NEW, earlier, reverting=True) == earlier


def test_a_release_is_warm_in_the_last_phase_only_and_not_in_a_return() -> None:
    assert SERVES.warm is None
    assert swap(Mode.BESIDE, Phase.DRAIN).warm is None
    retires = swap(Mode.BESIDE, Phase.RETIRE)
    assert retires.warm == OLD
    assert retires.changed(swap=replace(present(retires.swap), reverting=True)).warm is None


@pytest.mark.parametrize(("reverting", "result"), [(True, "reverted"), (False, "done")])
def test_a_swap_ends_as_what_it_was(reverting: bool, result: str) -> None:
    retires = swap(Mode.BESIDE, Phase.RETIRE)
    ends = retires.changed(swap=replace(present(retires.swap), reverting=reverting)).advanced()

    assert ((found := ends.outcome("i")) and found.result, ends.swap) == (result, None)


def test_the_old_release_has_the_traffic_until_it_is_withdrawn() -> None:
    assert traffic(swap(Mode.IN_PLACE, Phase.PREPARE)) == OLD
    assert traffic(swap(Mode.IN_PLACE, Phase.QUIESCE)) is None
    assert traffic(swap(Mode.BESIDE, Phase.LOAD)) == OLD


def test_a_container_that_starts_once_more_is_none_that_must_stop() -> None:
    failed = replace(SERVES, active=None)

    journal = failed.begun("i", Mode.FIRST, replace(OLD, slot=Slot.GREEN), automatic=True, retire=PAIR.ranks)

    assert [rank.place for rank in journal.stopped] == [("n3", "a-r1")]


def test_a_drain_is_bounded_by_the_release_that_drains() -> None:
    limits = Limits(drain_s=5, unknown_s=6)
    slow = replace(present(swap(Mode.BESIDE, Phase.DRAIN).swap), source=replace(OLD, limits=limits))

    assert slow.lasts_s == 11
    assert replace(slow, source=None, target=replace(NEW, limits=limits)).lasts_s == 11


def test_an_intent_has_one_outcome_and_a_container_stops_once() -> None:
    journal = SERVES.noted("i", "accepted").noted("j", "accepted").noted("i", "done")
    assert [(outcome.intent, outcome.result) for outcome in journal.outcomes] == [("j", "accepted"), ("i", "done")]
    for number in range(OUTCOMES):
        journal = journal.noted(f"k{number}", "done")
    assert (len(journal.outcomes), journal.outcome("i")) == (OUTCOMES, None)

    retires = swap(Mode.BESIDE, Phase.RETIRE)
    twice = retires.changed(stopped=tuple(OLD.ranks)).advanced()
    assert twice.stopped == tuple(OLD.ranks)


def test_a_restart_goes_through_every_phase_of_a_start() -> None:
    one = (Phase.QUIESCE, Phase.FREE, Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH)

    assert present(restart(Phase.QUIESCE).swap).phases == one
    assert present(restart(Phase.QUIESCE, PAIR).swap).phases == (*one[:2], Phase.WORKERS, *one[2:])


def test_a_restart_is_told_as_one_and_ends_as_done() -> None:
    assert present(swap(Mode.IN_PLACE, Phase.PREPARE).swap).way == "in-place"
    last = restart(Phase.SWITCH)
    assert present(last.swap).way == "restart"

    assert last.advanced().outcomes[-1].result == "done"
    assert last.advanced().stopped == ()


@pytest.mark.parametrize(
    ("phase", "again"),
    [
        (Phase.QUIESCE, Phase.QUIESCE),
        (Phase.FREE, Phase.FREE),
        (Phase.LOAD, Phase.FREE),
        (Phase.SWITCH, Phase.QUIESCE),
    ],
)
def test_a_restart_that_fails_begins_again_and_requests_wait_meanwhile(phase: Phase, again: Phase) -> None:
    failed = restart(phase).reverted("n2: no device")

    assert (present(failed.swap).phase, failed.restarts) == (again, 2)


def test_a_restart_whose_budget_is_spent_needs_an_operator() -> None:
    spent = restart(Phase.LOAD).changed(restarts=RESTARTS)

    failed = spent.reverted("n2: no device")

    assert (failed.swap, failed.trouble) == (spent.swap, "n2: no device")
    assert failed.reverted("another reason") is failed


def returning(phase: Phase, first: Deployment = OLD) -> Journal:
    """The journal of a return beside the new release."""
    return swap(Mode.BESIDE, phase, BESIDE, first).reverted("cancelled")


def test_a_return_is_over_where_the_promoted_release_answers_and_the_other_one_does_not() -> None:
    promoted, baked = returning(Phase.RETIRE), returning(Phase.BAKE)
    gateway = view("b", a=Answer.NO)
    engines = engine("a-r0", UP), engine("b-r0", UP)

    after = written(promoted, fleet(promoted, *engines, gateway=gateway))
    assert (after.swap, after.active, after.stopped) == (None, BESIDE, tuple(OLD.ranks))
    assert step(baked, fleet(baked, *engines, gateway=gateway)) is None, "the new release is not promoted"
    moved = view("a", a=Answer.NO)
    returned = written(promoted, fleet(promoted, *engines, gateway=moved))
    assert present(returned.swap).phase is Phase.PROMOTE, "it has not kept the traffic"


def test_where_both_releases_have_ended_the_old_one_starts_in_place_of_the_new_one() -> None:
    pair, lone = returning(Phase.BAKE, PAIR), returning(Phase.RETIRE)
    nothing, unknown = view("b", a=Answer.NO, b=Answer.NO), view("b", a=Answer.NO, b=Answer.UNKNOWN)
    pairs = engine("a-r0", DOWN), engine("a-r1", DOWN), engine("b-r0", DOWN)
    ended = engine("a-r0", DOWN), engine("b-r0", UP)

    for journal, engines in ((pair, pairs), (lone, ended)):
        after = present(written(journal, fleet(journal, *engines, gateway=nothing)).swap)
        assert (after.mode, after.phase, after.target.release) == (Mode.IN_PLACE, Phase.QUIESCE, "a")
        assert step(journal, fleet(journal, *engines, gateway=unknown)) is None


def test_an_old_pair_that_has_ended_is_what_a_failed_release_returns_to_only_after_the_switch() -> None:
    baked, loads = (swap(Mode.BESIDE, phase, BESIDE, PAIR) for phase in (Phase.BAKE, Phase.LOAD))
    pair = engine("a-r0", UP), engine("a-r1", DOWN)
    gateway = view("b", a=Answer.UNKNOWN, b=Answer.NO)

    after = present(written(baked, fleet(baked, *pair, engine("b-r0", DOWN), gateway=gateway)).swap)
    assert (after.mode, after.phase, after.target) == (Mode.IN_PLACE, Phase.QUIESCE, PAIR)
    failed = engine("b-r0", DOWN, key=key(loads))
    assert written(loads, fleet(loads, *pair, failed, gateway=view())).swap is None


def test_a_return_that_fails_is_retried_although_the_gateway_cannot_be_read() -> None:
    back = swap(Mode.IN_PLACE, Phase.LOAD).reverted("stalled").advanced()
    known = fleet(back, engine("a-r0", DOWN, key=key(back)), engine("b-r0", DOWN))

    assert written(back, known).restarts == 1


def test_a_wait_in_place_needs_an_operator_where_the_gateway_takes_no_change() -> None:
    waits = swap(Mode.IN_PLACE, Phase.START)
    rests = engine("a-r0", DOWN), engine("b-r0", DOWN)
    known = fleet(waits, *rests, gateway=waiting(waits), waited_s=LONG)

    assert present(written(waits, known).swap).reverting
    refusing = written(waits, replace(known, tried=SwitchTraffic(None)))
    assert (refusing.swap, refusing.trouble) == (waits.swap, "no progress in phase 'start'")


def test_a_bake_in_place_whose_gateway_cannot_be_read_needs_an_operator() -> None:
    """The new release may serve: a return would stop it."""
    bakes = swap(Mode.IN_PLACE, Phase.BAKE)

    after = written(bakes, fleet(bakes, engine("a-r0", DOWN), engine("b-r0", UP), waited_s=LONG))

    assert (after.swap, after.trouble) == (bakes.swap, "no progress in phase 'bake'")


def test_a_rebuilt_gateway_gives_no_traffic_to_a_release_that_does_not_answer() -> None:
    drains = swap(Mode.BESIDE, Phase.DRAIN, BESIDE)
    engines = engine("a-r0", UP), engine("b-r0", UP)

    for answers in (Answer.NO, Answer.UNKNOWN):
        gateway = view("", a=Answer.UNKNOWN, b=answers)
        assert not isinstance(step(drains, fleet(drains, *engines, gateway=gateway)), SwitchTraffic)


def test_a_release_fails_if_a_rank_has_ended_since_the_switch_whatever_answers() -> None:
    for phase, state, failing in ((Phase.BAKE, DOWN, True), (Phase.BAKE, UP, False), (Phase.VERIFY, DOWN, False)):
        journal = swap(Mode.BESIDE, phase, BESIDE)
        known = fleet(journal, engine("a-r0", UP), engine("b-r0", state), gateway=view())

        assert fails(journal, known) is failing


def test_a_promoted_release_is_kept_until_it_fails_and_nothing_else_can_bring_it_back() -> None:
    nobody, its_node = frozenset[str](), frozenset({"n2"})

    assert kept(SERVES, nobody, fails=True, stuck=True) is None
    assert kept(SERVES, its_node, fails=True, stuck=False) is None
    assert kept(SERVES, nobody, fails=True, stuck=False) == OLD
    assert kept(SERVES, its_node, fails=False, stuck=True) == OLD
    assert kept(replace(SERVES, active=None), nobody, fails=False, stuck=False) is None


def test_a_rebuild_returns_to_the_old_release_where_the_new_one_is_lost_that_had_the_traffic() -> None:
    wider = deployment("b", Slot.GREEN, "n1", "n2")

    journal = rebuilt([swap(Mode.IN_PLACE, Phase.BAKE, wider)], "n2", frozenset({"n1"}))

    assert (present(journal.swap).reverting, present(journal.swap).target) == (True, OLD)


def test_a_rebuild_continues_a_first_deploy() -> None:
    first = swap(Mode.FIRST, Phase.LOAD, first=None)

    assert rebuilt([first], "n3", frozenset({"n1"})).swap == first.swap


# What operators are told


def test_a_service_that_runs_is_not_forgotten_and_says_what_runs_first() -> None:
    stops = SERVES.changed(stopped=tuple(BESIDE.ranks))
    known = fleet(stops, gateway=view())

    assert accept(stops, Forget("i", stops.revision), known) == Refused("chat is not stopped: a may run")


@pytest.mark.parametrize(
    ("active", "target", "why"),
    [
        (OLD, replace(NEW, slot=Slot.BLUE), "slot blue is that of the active release"),
        (None, NEW, "mode in-place needs a promoted release, and no swap in progress"),
    ],
)
def test_a_swap_needs_another_slot_and_a_release_that_serves(
    active: Deployment | None, target: Deployment, why: str
) -> None:
    journal = replace(SERVES, active=active)
    known = fleet(journal)  # the gateway cannot be read for a moment

    assert accept(journal, Deploy("i", journal.revision, target, Mode.IN_PLACE), known) == Refused(why)


# What the gateway and the reports say


def test_a_slot_with_another_release_says_nothing_of_this_one() -> None:
    gateway = replace(view(), slots={Slot.BLUE: "z"})

    assert (gateway.serves(OLD), gateway.answer(OLD), gateway.requests(OLD)) == (False, Answer.UNKNOWN, None)
    assert (view().serves(OLD), view().answer(OLD), view().requests(OLD)) == (True, Answer.YES, 0)


def test_what_the_watch_finds_of_any_rank_is_found_of_the_release() -> None:
    journal = replace(SERVES, active=PAIR)
    known = fleet(journal, engine("a-r0", UP), engine("a-r1", UP, dead="no step", garbled="one character"))

    assert known.dead(journal, PAIR) == "no step"
    assert known.garbled(journal, PAIR) == "a answers garbage: one character"


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, ("a-r1",)),
        ({"active": NEW}, ()),
        ({"previous": PAIR}, ()),
        ({"previous": OLD}, ("a-r1",)),
        ({"without": frozenset()}, ()),
    ],
)
def test_only_a_release_that_served_on_a_lost_node_was_given_up(
    changes: dict[str, object], lost: tuple[str, ...]
) -> None:
    journal = Journal("chat", "n1", ("n2", "n3"), without=frozenset({"n3"}), stopped=tuple(PAIR.ranks))

    assert given_up(replace(journal, **changes)) == lost  # type: ignore[arg-type]
