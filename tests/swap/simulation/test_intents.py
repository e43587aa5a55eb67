"""What an operator may ask for, and the first reason why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.names import Slot
from sparkops.swap.fleet_state import EngineReport, EngineState
from sparkops.swap.intents import (
    CHANGED,
    Cancel,
    Deploy,
    EndWarm,
    Forget,
    Hold,
    Intent,
    NothingToDo,
    Promote,
    Refused,
    Stop,
    accept,
)
from sparkops.swap.journal import RESTARTS, Journal
from sparkops.swap.model import Mode, Phase
from sparkops.swap.orders import traffic
from tests.swap.simulation.scenarios import deployment, empty, settle
from tests.swap.simulation.story import C, Story
from tests.swap.simulation.test_reproductions import active, back
from tests.swap.simulation.world import World

PROMOTED = "needs a promoted release, and no swap in progress"


def answer(world: World, journal: Journal, intent: Intent, **changes: Any) -> object:
    """The reply to an intent where this is the journal; `changes`: of what the leader sees."""
    return accept(journal, intent, replace(world.fleet(world.leader), **changes))


def why(reply: object) -> str:
    assert isinstance(reply, Refused | NothingToDo), reply
    return reply.why


def test_of_several_reasons_against_any_intent_the_first_is_told() -> None:
    world = Story.of("in-place").settle().world
    fleet = world.fleet(world.leader)
    newer = {**fleet.reports, "n3": replace(fleet.reports["n3"], term=2)}
    deploy = Deploy("late", -1, C, Mode.ACROSS)
    journal = replace(world.leader.journal, stopping=True, hold="exam")
    planned = replace(deploy, revision=journal.revision)

    replies = (
        answer(world, journal, deploy, reports=newer, contacts=frozenset()),
        answer(world, journal, deploy, contacts=frozenset()),
        answer(world, journal, deploy),
        answer(world, journal, planned),
        answer(world, replace(journal, stopping=False), planned),
    )

    assert [why(reply) for reply in replies] == [
        "another guard has a newer journal than n1: sparkops gateway rebuild n1",
        "no other guard confirms that n1 leads; give up lost nodes with --without",
        "the service has changed since this plan; plan again",
        "chat is being stopped",
        "chat is on hold: exam",
    ]


def test_a_deploy_that_gives_up_every_silent_guard_is_accepted() -> None:
    world = Story.of("in-place").settle().world
    journal = world.leader.journal
    deploy = Deploy("next", journal.revision, C, Mode.ACROSS, without=frozenset({"n2", "n3"}))

    assert isinstance(answer(world, journal, deploy, contacts=frozenset()), Journal)
    assert isinstance(answer(world, journal, replace(deploy, without=frozenset()), contacts=frozenset()), Refused)
    assert isinstance(answer(world, journal, Stop("stop", journal.revision), contacts=frozenset()), Refused)


def leased(world: World, node: str, *engines: EngineReport) -> dict[str, Any]:
    """What the leader sees while a build runs on a node."""
    reports = world.fleet(world.leader).reports
    return {"reports": {**reports, node: replace(reports[node], engines=engines, lease="build")}}


def test_of_several_reasons_against_a_deploy_the_first_is_told() -> None:
    world = Story.of("in-place").settle().world
    pair = deployment("c", Slot.BLUE, "n2", "n3")
    serving = replace(world.leader.journal, active=pair)
    swapping = serving.begun("i", Mode.IN_PLACE, pair, automatic=True)
    other = replace(pair, release="d", slot=Slot.GREEN)
    lease = leased(world, "n2")
    lost = {"reports": {name: report for name, report in lease["reports"].items() if name != "n3"}}
    stalled = {"gateway": None}

    replies = [
        answer(world, swapping, Deploy("next", swapping.revision, pair, Mode.BESIDE), **lost, **stalled),
        answer(world, serving, Deploy("next", serving.revision, pair, Mode.ACROSS), **lost, **stalled),
        answer(world, serving, Deploy("next", serving.revision, pair, Mode.FIRST), **lost, **stalled),
        answer(world, serving, Deploy("next", serving.revision, other, Mode.FIRST), **lost, **stalled),
        answer(world, serving, Deploy("next", serving.revision, other, Mode.ACROSS), **lost, **stalled),
        answer(world, serving, Deploy("next", serving.revision, other, Mode.ACROSS), **lease, **stalled),
        answer(world, serving, Deploy("next", serving.revision, other, Mode.BESIDE), **lease, **stalled),
    ]

    assert [why(reply) for reply in replies] == [
        "chat: a swap to c is in phase 'prepare'",
        "c is active",
        "c is active",
        CHANGED,
        "n1 cannot reach the guards of: n3",
        "mode across does not fit these nodes",
        "n2: no engine loads during the build",
    ]
    assert isinstance(replies[-1], Refused)
    assert replies[-1].busy


def test_a_swap_makes_way_where_every_other_guard_is_given_up_and_nothing_serves() -> None:
    story = Story.of("in-place at the gateway").until(Phase.LOAD)
    alone = Deploy("next", story.journal.revision, deployment("c", Slot.BLUE, "n1"), Mode.FIRST)
    gives_up = replace(alone, without=frozenset({"n2", "n3"}))

    assert isinstance(answer(story.world, story.journal, gives_up, contacts=frozenset()), Journal)
    assert isinstance(answer(story.world, story.journal, gives_up), Refused), "they confirm it"


def test_a_first_deploy_makes_way_where_every_other_guard_is_given_up_and_the_gateway_is_not_read() -> None:
    story = Story.of("first").until(Phase.LOAD)
    alone = Deploy("next", story.journal.revision, deployment("c", Slot.BLUE, "n1"), Mode.FIRST)
    gives_up = replace(alone, without=frozenset({"n2", "n3"}))
    unread: dict[str, Any] = {"gateway": None}

    assert isinstance(answer(story.world, story.journal, gives_up, contacts=frozenset(), **unread), Journal)
    assert isinstance(answer(story.world, story.journal, gives_up, **unread), Refused), "they confirm it"


def test_work_on_a_node_keeps_no_release_back_that_runs_there() -> None:
    story = Story.of("across").until(Phase.RETIRE)
    intent = back(story, Mode.ACROSS)("next", story.journal.revision)
    runs, rests = (EngineReport("a-r0", state) for state in (EngineState.HEALTHY, EngineState.STOPPED))

    assert isinstance(answer(story.world, story.journal, intent, **leased(story.world, "n2", runs)), Journal)
    assert isinstance(answer(story.world, story.journal, intent, **leased(story.world, "n2", rests)), Refused)


@pytest.mark.parametrize(
    ("mode", "node", "slot", "problem"),
    [
        (Mode.FIRST, "n3", Slot.BLUE, CHANGED),
        (Mode.IN_PLACE, "n2", Slot.GREEN, "slot green has the traffic"),
        (Mode.IN_PLACE, "n3", Slot.BLUE, "mode in-place does not fit these nodes"),
        (Mode.BESIDE, "n3", Slot.BLUE, "mode beside does not fit these nodes"),
        (Mode.ACROSS, "n2", Slot.BLUE, "mode across does not fit these nodes"),
    ],
)
def test_a_mode_that_does_not_fit_is_refused(mode: Mode, node: str, slot: Slot, problem: str) -> None:
    story = Story.of("in-place").settle()

    assert why(story.reply(Deploy("c", story.journal.revision, deployment("c", slot, node), mode))) == problem


def test_without_an_active_release_only_a_first_deploy_is_accepted() -> None:
    world = settle(empty())
    journal = world.leader.journal
    deploy = Deploy("c", journal.revision, C, Mode.IN_PLACE)

    assert why(answer(world, journal, deploy)) == f"mode in-place {PROMOTED}"
    assert isinstance(answer(world, journal, replace(deploy, mode=Mode.FIRST), gateway=None), Journal)
    assert why(answer(world, journal, Stop("stop", journal.revision))) == "chat does not run"


def failing() -> Story:
    return Story.of("in-place").settle().hang("b-r0").settle()


def test_a_release_that_has_ended_for_good_is_deployed_anew() -> None:
    story = Story.of("in-place").settle()
    failed = story.journal.active
    for _ in range(RESTARTS + 1):
        story.fault("b-r0 is stopped").settle()
    assert failed is not None
    assert story.running == []

    assert story.ask(lambda name, revision: Deploy(name, revision, failed, Mode.FIRST))
    assert (story.journal.active, story.journal.swap and story.journal.swap.source) == (None, None)

    assert (active(story.settle()), story.running, story.armed) == ("b", ["b-r0"], ["b-r0"])


def test_another_release_replaces_one_that_fails_where_nothing_serves() -> None:
    story = failing()

    assert story.ask(lambda name, revision: Deploy(name, revision, C, Mode.FIRST))
    assert (story.journal.active, [rank.container for rank in story.journal.stopped]) == (None, ["b-r0"])

    assert (active(story.settle()), story.running, story.armed) == ("c", ["c-r0"], ["c-r0"])


def test_a_swap_makes_way_only_once_it_needs_an_operator_and_nothing_serves() -> None:
    story = Story.of("in-place").until(Phase.LOAD)
    deploy = Deploy("next", story.journal.revision, C, Mode.FIRST)
    across = replace(deploy, target=replace(C, slot=Slot.GREEN), mode=Mode.ACROSS)
    stuck, busy = replace(story.journal, trouble="stuck"), "chat: a swap to b is in phase 'wait until ready'"

    assert why(answer(story.world, story.journal, deploy)) == busy
    assert isinstance(answer(story.world, stuck, deploy), Journal)
    assert why(answer(story.world, stuck, across)) == f"mode across {PROMOTED}"
    assert why(answer(story.world, stuck, deploy, gateway=None)) == busy


def test_promote_ends_a_bake_that_waits_and_is_refused_where_none_does() -> None:
    story = Story.of("across", automatic=False).until(Phase.BAKE)

    assert story.ask(Promote)
    assert why(story.reply(Promote("again", story.journal.revision))) == "no release waits for promotion"
    assert (active(story.settle()), story.journal.swap) == ("b", None)
    assert why(story.reply(Promote("late", story.journal.revision))) == "no release waits for promotion"


def test_promote_is_refused_while_the_old_release_returns() -> None:
    story = Story.of("in-place", automatic=False).until(Phase.BAKE).operator("cancel")

    assert why(story.reply(Promote("late", story.journal.revision))) == "no release waits for promotion"


def test_only_a_swap_that_goes_forward_and_is_not_promoted_is_cancelled() -> None:
    ended = (Story.of("across").until(Phase.RETIRE), Story.of("across").settle())
    busy = (
        Story.of("in-place").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.LOAD),
        Story.of("pair in-place").settle().fault("b-r1 is stopped").until(Phase.LOAD),
    )

    for story in ended:
        assert story.reply(Cancel("late", story.journal.revision)) == NothingToDo("no unfinished swap")
    for story in busy:
        reply = story.reply(Cancel("late", story.journal.revision))
        assert isinstance(reply, Refused)
        assert (reply.busy, "is in phase 'wait until ready'" in reply.why) == (True, True)


def test_a_stop_ends_a_swap_only_by_force_and_says_who_has_stopped_it() -> None:
    story = Story.of("across").until(Phase.LOAD)
    stop = Stop("stop", story.journal.revision, by="bob@desk")
    refused = story.reply(stop)

    assert isinstance(refused, Refused)
    assert (refused.busy, refused.why) == (True, "chat: a swap to b is in phase 'wait until ready'")
    stopping = story.reply(replace(stop, force=True))
    assert isinstance(stopping, Journal)
    assert stopping.revision == story.journal.revision + 1
    assert [(item.result, item.why) for item in stopping.outcomes if item.intent == story.journal.swap.intent] == [  # type: ignore[union-attr]
        ("stopped", "stopped by bob@desk while it started")
    ]


@pytest.mark.parametrize("phase", [Phase.RETIRE, None])
def test_a_stop_needs_no_force_where_no_swap_is_in_progress(phase: Phase | None) -> None:
    story = Story.of("across").until(phase) if phase else Story.of("across").settle()

    assert isinstance(story.reply(Stop("stop", story.journal.revision)), Journal)


def test_a_warm_release_is_ended_before_its_time_and_only_a_warm_one() -> None:
    story = Story.of("across").until(Phase.RETIRE)
    loading = Story.of("across").until(Phase.LOAD)

    reply = story.reply(EndWarm("end", story.journal.revision))
    assert isinstance(reply, Journal)
    assert (reply.swap, [rank.container for rank in reply.stopped]) == (None, ["a-r0"])
    assert (reply.revision, reply.active) == (story.journal.revision + 1, story.journal.active)
    assert loading.reply(EndWarm("end", loading.journal.revision)) == NothingToDo("no release is only kept warm")


@pytest.mark.parametrize("by", ["x" * 129, "ann\x1b[2J", "ann\nbob", "\u202enna"])
def test_a_sender_that_would_garble_a_history_is_refused(by: str) -> None:
    with pytest.raises(ValueError, match="by: expected up to 128 printable characters"):
        Promote("i", 1, by=by)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.LOAD])
def test_a_first_deploy_is_stopped_as_well(phase: Phase) -> None:
    story = Story.of("first").until(phase)

    assert story.ask(lambda id_, revision: Stop(id_, revision, force=True))
    assert traffic(story.journal) is None
    assert (story.settle().running, story.journal.swap) == ([], None)


def test_a_service_is_forgotten_only_once_every_guard_has_confirmed_its_stop() -> None:
    serving = Story.of("across").settle()
    stopped = Story.of("across").settle().operator("stop").settle()
    unconfirmed = stopped.journal.changed(stopped=(next(deployment("b", Slot.GREEN, "n3").ranks),))
    forget = Forget("forget", stopped.journal.revision)

    assert why(serving.reply(Forget("f", serving.journal.revision))) == "chat is not stopped: b may run"
    refused = answer(stopped.world, unconfirmed, replace(forget, revision=unconfirmed.revision))
    assert isinstance(refused, Refused)
    assert (refused.busy, refused.why) == (
        True,
        "chat: no guard has confirmed that these have stopped: b-r0 on n3",
    )
    assert isinstance(stopped.reply(forget), Journal)


def test_a_forgotten_service_has_no_way_back_and_is_forgotten_once() -> None:
    story = Story.of("across").settle().operator("stop").settle().operator("forget").settle()

    assert (story.journal.forgotten, story.journal.previous, story.running) == (True, None, [])
    assert why(story.reply(Forget("again", story.journal.revision))) == "chat is forgotten"
    assert all(machine.record.copy == story.journal for machine in story.world.machines)


def test_a_deploy_of_a_forgotten_service_makes_it_known_again() -> None:
    story = Story.of("across").settle().operator("stop").settle().operator("forget").settle()

    assert story.deploy(Mode.FIRST, "n2")
    story.settle()

    assert (active(story), story.journal.forgotten) == ("c", False)


def test_a_service_that_only_the_gateway_knows_is_forgotten() -> None:
    """A deploy that was refused after it had changed the gateway leaves its names and port there."""
    journal = accept(Journal("chat", "n1"), Forget("f", 0), empty().fleet(empty().leader))

    assert isinstance(journal, Journal)
    assert journal.forgotten


def test_a_hold_needs_a_release_that_serves_and_its_end_needs_none() -> None:
    story = failing()
    refusal = "chat does not serve; roll the swap back first"
    hold = Hold("hold", story.journal.revision, "exam")

    assert why(story.reply(hold)) == refusal
    assert why(answer(story.world, story.journal, hold, gateway=None)) == refusal
    assert story.reply(replace(hold, reason="")) == NothingToDo("nothing was held")
    held = story.journal.changed(hold="exam")
    assert isinstance(answer(story.world, held, Hold("off", held.revision, "")), Journal)


def test_a_hold_before_the_old_release_lost_its_traffic_costs_no_request() -> None:
    story = Story.of("in-place").until(Phase.PREPARE).operator("hold").settle()

    assert (active(story), story.running, story.journal.hold) == ("a", ["a-r0"], "exam")


def test_a_hold_after_an_in_place_switch_lets_the_swap_end() -> None:
    story = Story.of("in-place").until(Phase.BAKE).operator("hold").settle()

    assert (active(story), story.journal.hold) == ("b", "exam")


def test_a_release_that_stops_is_to_have_no_traffic() -> None:
    story = Story.of("in-place").settle().operator("stop")

    assert traffic(story.journal) is None
