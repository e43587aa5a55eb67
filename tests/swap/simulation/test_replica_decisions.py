"""Single decisions about replicas, each from the values that it needs: what a run reaches by a rare way, or heals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import CutRequests, PointSlot, SwitchTraffic, WriteJournal
from sparkops.swap.events import narrate
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView, Report
from sparkops.swap.journal import RESTARTS, Journal, Swap, present
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Deployment, Mode, Phase
from sparkops.swap.orders import hold, slots
from sparkops.swap.phases import RULES
from sparkops.swap.rebuild import rebuilt
from tests.swap.simulation.scenarios import deployment, replicas
from tests.swap.simulation.story import Story
from tests.swap.simulation.world import LONG

NODES = ("n1", "n2", "n3", "n4")
TWO, NEW = replicas("a", "n2", "n3"), replicas("b", "n2", "n3")
GREEN = replace(NEW, slot=Slot.GREEN)
THREE, NEW_THREE = replicas("a", "n1", "n2", "n3"), replicas("b", "n1", "n2", "n3")
PAIRS, NEW_PAIRS = replicas("a", "n1+n2", "n3+n4"), replicas("b", "n1+n2", "n3+n4")
UP, LOADS, DOWN, ABSENT = EngineState.HEALTHY, EngineState.LOADING, EngineState.STOPPED, EngineState.ABSENT


def serving(active: Deployment) -> Journal:
    return Journal("chat", "n1", ("n2", "n3", "n4"), revision=7, active=active)


def entered(journal: Journal, phase: Phase) -> Journal:
    while present(journal.swap).phase is not phase:
        journal = journal.advanced()
    return journal


def rolling(phase: Phase, first: Deployment = TWO, goal: Deployment = NEW) -> Journal:
    """The journal of the first step of a rolling update in a phase."""
    return entered(serving(first).begun("i", Mode.ROLLING, goal, automatic=True), phase)


def swap_of(journal: Journal) -> Swap:
    return present(journal.swap)


def rest_of(journal: Journal) -> Deployment:
    """The part of a release that serves on."""
    return present(swap_of(journal).rest)


def view(*pointed: Deployment, active: bool = True, **known: object) -> GatewayView:
    """The gateway with these deployments in their slots, all of which answer; the first has the traffic."""
    slots = {item.slot: item.mark for item in pointed}
    none = dict.fromkeys(slots, 0)
    answers = dict.fromkeys(slots, Answer.YES)
    gateway = GatewayView(pointed[0].slot if active else None, slots, answers, none, none)
    return replace(gateway, **known)  # type: ignore[arg-type]


def fleet(journal: Journal, gateway: GatewayView | None, *engines: EngineReport, **known: object) -> FleetState:
    """The fleet where every guard follows the journal. An engine runs where nothing else is stated."""
    states = {item.container: item for item in engines}
    ranks = {rank.place: rank for item in journal.deployments for rank in item.ranks}.values()
    reports = {}
    for node in NODES:
        at_node = [rank.container for rank in ranks if rank.node == node]
        here = tuple(states.get(container, EngineReport(container, UP)) for container in at_node)
        reports[node] = Report(node, "boot", journal.term, journal.revision, journal.revision, here)
    return FleetState(reports, gateway, frozenset(NODES), **known)  # type: ignore[arg-type]


def engine(container: str, state: EngineState, **known: object) -> EngineReport:
    return EngineReport(container, state, **known)  # type: ignore[arg-type]


def down(release: Deployment) -> list[EngineReport]:
    return [engine(rank.container, DOWN) for rank in release.ranks]


def written(journal: Journal, known: FleetState) -> Journal:
    """The journal that the leader writes next."""
    effect = step(journal, known)
    assert isinstance(effect, WriteJournal), effect
    return effect.journal


def rule(journal: Journal, known: FleetState) -> object:
    return RULES[swap_of(journal).phase](journal, swap_of(journal), known)


# What keeps a release in service


@pytest.mark.parametrize("watch", [{"dead": "no step for 60 s"}, {"garbled": "one character"}])
def test_a_slot_gets_its_servers_before_anything_in_it_is_judged(watch: dict[str, object]) -> None:
    journal = serving(TWO)
    other = view(TWO, slots={Slot.BLUE: "another release"})

    known = fleet(journal, other, engine("a2-r0", UP, **watch), waited_s=LONG)

    assert step(journal, known) == PointSlot(TWO)


def test_a_slot_gets_its_servers_also_where_every_pair_has_ended() -> None:
    journal = serving(PAIRS)

    assert step(journal, fleet(journal, view(TWO), *down(PAIRS))) == PointSlot(PAIRS)


def test_a_dead_replica_is_restarted_alone_also_while_the_release_does_not_answer() -> None:
    journal = serving(TWO)
    silent = view(TWO, answers={Slot.BLUE: Answer.NO})

    after = written(journal, fleet(journal, silent, engine("a2-r0", UP, dead="no step for 60 s")))

    assert (swap_of(after).restarts, swap_of(after).kept) == (True, TWO.replicas[1:])


def test_a_pair_of_several_that_has_ended_is_restarted_whatever_answers_on_its_port() -> None:
    journal = serving(PAIRS)

    after = written(journal, fleet(journal, view(PAIRS, active=False), engine("a1-r1", DOWN)))

    assert swap_of(after).kept == PAIRS.replicas[1:]


@pytest.mark.parametrize(
    ("watch", "why"),
    [
        ({"dead": "no step for 60 s"}, "no step for 60 s"),
        ({"garbled": "one character"}, "a answers garbage: one character"),
    ],
)
def test_a_restart_of_a_replica_names_what_its_watch_has_found(watch: dict[str, object], why: str) -> None:
    journal = serving(TWO)

    assert swap_of(written(journal, fleet(journal, view(TWO), engine("a2-r0", UP, **watch)))).why == why


# What ends a step


def test_a_step_that_has_failed_keeps_its_reason_where_every_pair_has_ended() -> None:
    journal = rolling(Phase.QUIESCE, PAIRS, NEW_PAIRS)
    removed = engine("b1-r0", ABSENT, problem="no such image")

    after = written(journal, fleet(journal, view(PAIRS), removed, *down(PAIRS)))

    assert swap_of(after).why == "n1: no such image"


def test_a_pair_that_has_ended_is_replaced_in_place_all_the_same() -> None:
    first, target = deployment("a", Slot.BLUE, "n2", "n3"), deployment("b", Slot.GREEN, "n2", "n3")
    journal = entered(serving(first).begun("i", Mode.IN_PLACE, target, automatic=True), Phase.QUIESCE)

    assert isinstance(step(journal, fleet(journal, view(first), *down(first), *down(target))), SwitchTraffic)


def test_a_restart_of_a_pair_does_not_wait_for_the_other_one_which_has_ended_too() -> None:
    journal = serving(PAIRS).restarted("", PAIRS.replicas[1:])

    assert swap_of(written(journal, fleet(journal, view(rest_of(journal)), *down(PAIRS)))).phase is Phase.FREE


def test_a_return_of_a_single_replica_lasts_although_the_other_one_has_ended() -> None:
    """The guard of the other one starts it."""
    journal = rolling(Phase.LOAD).reverted("stalled")

    after = written(journal, fleet(journal, view(rest_of(journal)), *down(TWO), *down(NEW)))

    assert (swap_of(after).reverting, swap_of(after).phase) == (True, Phase.FREE)


@pytest.mark.parametrize("phase", [Phase.LOAD, Phase.BAKE])
def test_a_step_returns_where_nothing_is_known_of_the_new_replica(phase: Phase) -> None:
    """The old one is verified before it gets requests. To end the swap would leave that to its guard."""
    story = Story.of("rolling").until(phase).copied()
    known = story.world.fleet(story.world.leader)
    reports = {node: report for node, report in known.reports.items() if node != "n2"}

    after = written(story.journal, replace(known, reports=reports, waited_s=LONG))

    assert (swap_of(after).reverting, swap_of(after).target) == (True, TWO)


# What the gateway gets


def test_a_rebuilt_gateway_gets_the_traffic_in_a_step_that_only_removes_a_replica() -> None:
    journal = rolling(Phase.SWITCH, TWO, replicas("a", "n3"))
    target = swap_of(journal).target

    assert step(journal, fleet(journal, view(target, active=False))) == SwitchTraffic(target)


def test_a_rebuilt_gateway_waits_for_the_answer_of_a_new_replica() -> None:
    journal = rolling(Phase.SWITCH)
    pointed = swap_of(journal).target, swap_of(journal).proving
    answers = {Slot.BLUE: Answer.YES, Slot.GREEN: Answer.UNKNOWN}

    assert step(journal, fleet(journal, view(*pointed, active=False, answers=answers))) is None


def test_a_new_replica_that_loads_has_no_slot() -> None:
    """An answer of the slot is one of this start."""
    journal = rolling(Phase.LOAD)

    assert step(journal, fleet(journal, view(rest_of(journal)), engine("b2-r0", LOADS), engine("a2-r0", DOWN))) is None


def test_replicas_that_come_all_at_once_have_switched_before_each_has_passed_its_check() -> None:
    target = replace(NEW, slot=Slot.GREEN)
    journal = entered(serving(TWO).begun("i", Mode.IN_PLACE, target, automatic=True), Phase.SWITCH)
    gateway = view(target, down=frozenset({("n2", "b2-r0")}))

    assert rule(journal, fleet(journal, gateway)) is Answer.YES


def test_a_return_that_is_retried_does_not_wait_for_checks_of_what_it_starts() -> None:
    """The slot where they are verified may still have them."""
    fewer = replace(NEW_THREE, limits=replace(NEW_THREE.limits, min_serving=1))
    journal = rolling(Phase.LOAD, THREE, fewer).reverted("stalled").reverted("stalled")
    places = frozenset(rank.place for rank in swap_of(journal).coming.heads)
    assert len(places) == 2

    gateway = view(rest_of(journal), swap_of(journal).proving, down=places)

    assert rule(journal, fleet(journal, gateway)) is Answer.YES


def test_requests_that_a_slot_has_left_are_those_of_the_release_that_it_has() -> None:
    gateway = GatewayView(Slot.BLUE, {Slot.BLUE: "another release"}, left={Slot.BLUE: 2})

    assert gateway.requests_left(TWO) is None
    assert view(TWO, left={Slot.BLUE: 2}).requests_left(TWO) == 2


def test_a_slot_may_have_the_parts_of_a_step_but_none_without_a_replica() -> None:
    replaces, removes = rolling(Phase.LOAD), rolling(Phase.FREE, THREE, replicas("a", "n2", "n3"))

    assert rest_of(replaces) in replaces.pointed
    assert swap_of(replaces).proving in replaces.pointed
    assert all(item.replicas for item in removes.pointed)


def test_the_mark_of_a_release_names_the_places_of_several_replicas_only() -> None:
    assert replicas("a", "n2").mark == "a"
    assert TWO.mark == "a a2-r0@n2 a3-r0@n3"


def test_requests_in_a_replica_that_has_ended_are_cut_although_a_node_of_the_new_one_is_silent() -> None:
    journal = rolling(Phase.QUIESCE, replicas("a", "n1", "n3"), replicas("b", "n3+n4", "n1"))
    gateway = view(rest_of(journal), left={Slot.BLUE: 1})
    known = fleet(journal, gateway, engine("a3-r0", DOWN))
    reports = {node: report for node, report in known.reports.items() if node != "n4"}

    assert rule(journal, replace(known, reports=reports)) == CutRequests(rest_of(journal), left=True)


def test_requests_in_a_release_that_has_ended_are_cut_while_the_one_that_returns_runs() -> None:
    first, target = deployment("a", Slot.BLUE, "n2"), deployment("b", Slot.GREEN, "n3")
    bakes = entered(serving(first).begun("i", Mode.BESIDE, target, automatic=True), Phase.BAKE)
    journal = entered(bakes.reverted("cancelled"), Phase.DRAIN)
    gateway = view(first, target, open={Slot.BLUE: 0, Slot.GREEN: 1})

    assert rule(journal, fleet(journal, gateway, engine("b-r0", DOWN))) == CutRequests(target)


# What a journal keeps


def test_a_step_that_ends_before_the_last_one_has_not_reached_its_goal() -> None:
    journal = rolling(Phase.PROMOTE)

    assert journal.settled("no progress").outcomes[-1].result == "reverted"
    assert entered(journal.advanced(), Phase.PROMOTE).settled("").outcomes[-1].result == "done"


def test_a_return_of_replicas_first_waits_until_enough_of_the_others_serve() -> None:
    assert swap_of(rolling(Phase.LOAD).reverted("stalled")).phase is Phase.QUIESCE


def test_a_return_whose_budget_is_spent_ends_with_the_reason_of_the_first_failure_if_there_is_one() -> None:
    returns = replace(rolling(Phase.LOAD).reverted("the first"), restarts=RESTARTS)
    restarts = replace(serving(TWO).restarted("", TWO.replicas[1:]), restarts=RESTARTS)

    assert returns.reverted("the last").outcomes[-1].why == "the first"
    assert restarts.reverted("the last").outcomes[-1].why == "the last"


# What starts at once, with no release to return to


def at_once(phase: Phase, first: Deployment = TWO, goal: Deployment = GREEN) -> Journal:
    """The return of a swap in place to several replicas, in a phase."""
    swap = entered(serving(first).begun("i", Mode.IN_PLACE, goal, automatic=True), Phase.LOAD)
    return entered(swap.reverted("it failed"), phase)


def offline(journal: Journal) -> GatewayView:
    """The gateway as this journal wants it, while no release has the traffic and none answers."""
    pointed = {item.slot: item.mark for item in slots(journal)}
    request_hold, silent = hold(journal), dict.fromkeys(pointed, Answer.NO)
    return GatewayView(None, pointed, silent, held=request_hold.mark if request_hold else "")


def without(known: FleetState, *silent: str, **changes: object) -> FleetState:
    """The fleet without reports of these nodes, at the bound of a wait."""
    reports = {node: report for node, report in known.reports.items() if node not in silent}
    return replace(known, reports=reports, waited_s=LONG, **changes)  # type: ignore[arg-type]


def test_a_return_of_several_goes_on_without_the_silent_ones_where_it_is() -> None:
    journal = at_once(Phase.LOAD)

    after = written(journal, without(fleet(journal, offline(journal)), "n3"))

    assert (swap_of(after).kept, swap_of(after).restarts) == (TWO.replicas[1:], True)
    assert (swap_of(after).phase, swap_of(after).key) == (Phase.LOAD, swap_of(journal).key)
    assert present(after.outcome("i")).result == "reverted"
    assert {rank.container for rank in after.stopped} >= {rank.container for rank in NEW.ranks}


def test_a_restart_of_several_keeps_the_reason_why_it_began() -> None:
    journal = entered(serving(PAIRS).restarted("no step for 60 s"), Phase.START)

    after = written(journal, without(fleet(journal, offline(journal)), "n4"))

    assert swap_of(after).kept == PAIRS.replicas[1:]
    assert present(after.outcome(swap_of(journal).intent)).why == "no step for 60 s"


@pytest.mark.parametrize(
    ("first", "silent"),
    [(deployment("a", Slot.BLUE, "n2", "n3"), ["n3"]), (TWO, ["n2", "n3"]), (PAIRS, ["n2", "n4"])],
)
def test_a_return_needs_an_operator_where_no_whole_replica_is_left(first: Deployment, silent: list[str]) -> None:
    journal = at_once(Phase.START, first, deployment("b", Slot.GREEN, *sorted(first.nodes)))

    assert written(journal, without(fleet(journal, offline(journal)), *silent)).trouble


def test_a_swap_that_has_a_release_to_return_to_leaves_no_replica_out() -> None:
    journal = entered(serving(TWO).begun("i", Mode.IN_PLACE, GREEN, automatic=True), Phase.LOAD)
    known = fleet(journal, offline(journal), engine("a2-r0", DOWN), engine("a3-r0", DOWN))

    assert swap_of(written(journal, without(known, "n3"))).reverting
    failed = replace(known, reports={**known.reports, "n2": failing(journal, known, "n2", "b2-r0")})
    assert swap_of(written(journal, failed)).reverting


def failing(journal: Journal, known: FleetState, node: str, container: str) -> Report:
    """The report of a node where the start of the swap's key has failed."""
    report = known.reports[node]
    bad = engine(container, LOADS, key=swap_of(journal).key, problem="stalled")
    others = tuple(item for item in report.engines if item.container != container)
    return replace(report, engines=(*others, bad))


def test_a_return_of_several_goes_on_without_the_one_that_fails() -> None:
    journal = at_once(Phase.LOAD)
    known = fleet(journal, offline(journal))

    after = written(journal, replace(known, reports={**known.reports, "n2": failing(journal, known, "n2", "a2-r0")}))

    assert (swap_of(after).kept, swap_of(after).why) == (TWO.replicas[:1], "n2: stalled")
    assert next(event.text for event in narrate(journal, after)) == "n2: stalled; the others start without a2-r0"


def test_a_return_of_several_that_all_fail_begins_again() -> None:
    journal = at_once(Phase.LOAD)
    known = fleet(journal, offline(journal))
    reports = {node: failing(journal, known, node, f"a{node[1:]}-r0") for node in ("n2", "n3")}

    after = written(journal, replace(known, reports={**known.reports, **reports}))

    assert (swap_of(after).kept, swap_of(after).phase, after.restarts) == ((), Phase.FREE, 1)


def test_a_return_of_several_that_none_answers_after_begins_again_although_one_has_ended() -> None:
    journal = at_once(Phase.SWITCH)
    known = fleet(journal, offline(journal), engine("a2-r0", DOWN, key=swap_of(journal).key))

    after = written(journal, known)

    assert (swap_of(after).kept, swap_of(after).phase) == ((), Phase.QUIESCE)


def test_replicas_that_are_left_out_are_left_out_once() -> None:
    journal = at_once(Phase.LOAD, THREE, replace(NEW_THREE, slot=Slot.GREEN)).left_out(THREE.replicas[2:], "silent")

    after = written(journal, without(fleet(journal, offline(journal)), "n2", "n3"))

    assert (after.swap, present(after.active).replicas) == (None, THREE.replicas)


def test_a_stop_ends_a_return_of_several_as_it_is() -> None:
    journal = replace(at_once(Phase.LOAD), stopping=True)

    effect = step(journal, without(fleet(journal, None), "n3"))

    assert isinstance(effect, WriteJournal)
    assert swap_of(effect.journal) == swap_of(journal)


def test_a_bake_of_several_goes_on_while_one_of_them_is_on_a_silent_node() -> None:
    journal = entered(serving(TWO).begun("i", Mode.BESIDE, GREEN, automatic=True), Phase.BAKE)
    known = without(fleet(journal, view(GREEN, TWO)), "n3", sampled_s=LONG)

    assert rule(journal, known) is Answer.YES
    assert rule(journal, without(known, "n2", "n3")) is Answer.UNKNOWN
    ended = replace(known, reports={**known.reports, "n2": replace(known.reports["n2"], engines=())})
    assert rule(journal, ended) is Answer.NO


def test_a_promotion_of_several_waits_for_a_silent_node_within_its_bound() -> None:
    journal = entered(serving(TWO).begun("i", Mode.BESIDE, GREEN, automatic=True), Phase.BAKE)
    journal = journal.advanced()
    known = without(fleet(journal, view(GREEN, TWO)), "n3")
    assert rule(journal, known) is Answer.NO  # no boot record names it yet

    armed = replace(known, reports={**known.reports, "n2": replace(known.reports["n2"], armed="b2-r0")})

    assert rule(journal, armed) is Answer.YES
    assert rule(journal, replace(armed, waited_s=0.0)) is Answer.NO
    ended = replace(armed.reports["n2"], engines=(engine("b2-r0", DOWN),))
    assert rule(journal, replace(armed, reports={**armed.reports, "n2": ended})) is Answer.NO


def test_nothing_is_withdrawn_where_nothing_has_the_traffic() -> None:
    journal = serving(TWO).restarted("dead").left_out(TWO.replicas[1:], "silent")
    none = {Slot.BLUE: 0}

    assert rule(journal, fleet(journal, replace(offline(journal), open=none, left=none))) is Answer.YES
    assert rule(journal, fleet(journal, None)) is Answer.UNKNOWN


# What a rebuild leaves


def of_rebuild(journal: Journal, node: str, *lost: str) -> Journal:
    return rebuilt([journal], node, frozenset(lost))


def test_a_rebuild_keeps_the_slots_of_replicas_that_are_replaced_all_at_once() -> None:
    target = replace(NEW, slot=Slot.GREEN)
    journal = entered(serving(TWO).begun("i", Mode.IN_PLACE, target, automatic=True), Phase.LOAD)

    returns = swap_of(of_rebuild(journal, "n2", "n1", "n3"))

    assert (returns.target.slot, present(returns.source).slot) == (Slot.BLUE, Slot.GREEN)


def test_a_rebuild_continues_with_a_new_replica_where_all_others_are_lost() -> None:
    journal = rolling(Phase.LOAD, replicas("a", "n1", "n2"), replicas("b", "n1", "n3"))

    after = of_rebuild(journal, "n3", "n1", "n2")

    assert after.active is None
    assert swap_of(after).coming.nodes == {"n3"}


def test_a_rebuild_returns_to_an_old_replica_where_all_of_the_step_are_lost() -> None:
    journal = rolling(Phase.LOAD, replicas("a", "n1", "n3"), replicas("b", "n3+n4", "n1"))
    assert swap_of(journal).coming.nodes == {"n3", "n4"}

    after = of_rebuild(journal, "n3", "n1", "n4")

    assert present(after.active).nodes == {"n3"}
    assert swap_of(after).reverting


def test_a_rebuild_goes_on_with_what_is_left_of_a_first_deploy() -> None:
    journal = entered(Journal("chat", "n1", ("n2", "n3")).begun("i", Mode.FIRST, TWO, automatic=True), Phase.LOAD)

    after = swap_of(of_rebuild(journal, "n3", "n1", "n2"))

    assert not after.source
    assert (sorted(after.target.nodes), after.phase) == (["n3"], Phase.LOAD)


def test_a_rebuild_stops_a_container_once() -> None:
    (lost,) = TWO.less(TWO.replicas[:1]).ranks
    journal = replace(serving(TWO), stopped=(lost,))

    assert of_rebuild(journal, "n2", "n1", "n3").stopped == (lost,)


def test_a_rebuild_leaves_the_replicas_that_serve_on_in_their_slot() -> None:
    journal = entered(rolling(Phase.PROMOTE, THREE, NEW_THREE).advanced(), Phase.LOAD)
    assert swap_of(journal).coming.nodes == {"n2"}

    after = swap_of(of_rebuild(journal, "n2", "n1"))

    assert (after.mode, after.kept) == (Mode.ROLLING, THREE.replicas[2:])
    assert after.target.slot is present(after.source).slot is Slot.BLUE


def test_a_rebuild_without_the_replica_that_serves_on_returns_in_the_slot_of_the_promoted_release() -> None:
    journal = rolling(Phase.LOAD)

    after = of_rebuild(journal, "n2", "n1", "n3")

    assert (swap_of(after).mode, swap_of(after).target) == (Mode.IN_PLACE, after.active)
    assert present(swap_of(after).source).slot is Slot.GREEN


def test_a_rebuild_without_the_replica_that_serves_on_continues_the_restart_of_the_other_one() -> None:
    journal = entered(serving(TWO).restarted("dead", TWO.replicas[1:]), Phase.LOAD)

    after = of_rebuild(journal, "n2", "n1", "n3")

    assert (swap_of(after).restarts, swap_of(after).key, after.restarts) == (True, swap_of(journal).key, 1)


def test_a_rebuild_that_loses_no_replica_returns_from_a_bake() -> None:
    assert swap_of(of_rebuild(rolling(Phase.BAKE), "n2", "n1")).reverting
    assert not swap_of(of_rebuild(rolling(Phase.PROMOTE), "n2", "n1")).reverting
