"""What a change of a journal means to people."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.events import narrate
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica

pytestmark = pytest.mark.unit


def deployment(name: str, slot: Slot) -> Deployment:
    return Deployment(name, slot, (Replica((RankSpec("n1", f"{name}-r0"),)),))


OLD, NEW = deployment("old", Slot.BLUE), deployment("new", Slot.GREEN)
SERVING = Journal("chat", "n1", revision=5, active=OLD)


def begun(mode: Mode, phase: Phase | None = None) -> Journal:
    journal = SERVING.begun("i1", mode, NEW, automatic=True)
    if phase is None or journal.swap is None:
        return journal
    return replace(journal, swap=replace(journal.swap, phase=phase))


def kinds(old: Journal, new: Journal) -> list[str]:
    return [event.kind for event in narrate(old, new)]


def test_an_accepted_intent_and_its_first_phase_are_told() -> None:
    texts = [event.text for event in narrate(SERVING, begun(Mode.ACROSS))]

    assert texts == ["intent i1: new, mode across, on n1", "new: prepare"]


def test_an_intent_is_told_with_its_verb_its_sender_and_where_it_goes() -> None:
    signed = begun(Mode.ACROSS).signed("i1", "rollback", "ann@laptop")
    held = SERVING.noted("i2", "accepted", hold="audit").signed("i2", "hold", "ann@laptop")

    (deploy, _), (hold, _) = narrate(SERVING, signed), narrate(SERVING, held)

    assert deploy.text == "rollback by ann@laptop: new, mode across, on n1"
    named = {
        "intent": "i1",
        "verb": "rollback",
        "by": "ann@laptop",
        "release": "new",
        "mode": "across",
        "nodes": ["n1"],
    }
    assert deploy.more == named
    assert hold.text == "hold by ann@laptop: accepted"


def test_a_promotion_is_told_at_once_and_the_end_of_its_swap_before_the_warm_time() -> None:
    baked = begun(Mode.ACROSS, Phase.BAKE)
    promoted = baked.advanced()
    drained = promoted.advanced()
    warm = drained.advanced()

    phase, notice = narrate(baked, promoted)
    assert (phase.kind, notice.text, notice.more["notice"]["code"]) == ("phase", "new is promoted", "PROMOTED")
    assert kinds(promoted, drained) == ["phase"]
    _, end = narrate(drained, warm)
    assert (end.kind, end.text, end.more["exit_code"], end.more["intent"]) == ("end", "new serves", 0, "i1")
    assert "notice" not in end.more, "the promotion was told"


@pytest.mark.parametrize("ends", ["in time", "deploy", "stop"])
def test_the_end_of_the_warm_time_is_told_however_it_ends(ends: str) -> None:
    warm = replace(begun(Mode.ACROSS, Phase.DRAIN), active=NEW).advanced()
    other = deployment("other", Slot.BLUE)
    after = {
        "in time": warm.advanced(),
        "deploy": replace(warm, swap=None).begun("i2", Mode.BESIDE, other, automatic=True),
        "stop": warm.noted("i2", "accepted", stopping=True).offline(),
    }[ends]

    texts = [event.text for event in narrate(warm, after)]
    assert "old is kept warm no longer" in texts
    back = warm.begun("i2", Mode.BESIDE, OLD, automatic=True)
    assert "old is kept warm no longer" not in [event.text for event in narrate(warm, back)]


def test_a_stop_in_the_middle_of_a_swap_ends_it_with_1_and_the_name_of_who_stopped_it() -> None:
    starting = begun(Mode.ACROSS, Phase.LOAD)
    stopping = starting.noted("i2", "accepted", stopping=True).cut_short("stopped by bob@desk while it started")

    (_, end) = narrate(starting, stopping)

    assert (end.kind, end.text) == ("end", "new: stopped by bob@desk while it started")
    assert (end.more["intent"], end.more["result"], end.more["exit_code"], end.more["release"]) == (
        "i1",
        "stopped",
        1,
        "",
    )


def test_each_phase_is_told_once() -> None:
    first = begun(Mode.ACROSS)
    second = first.advanced()

    assert kinds(first, second) == ["phase"]
    assert kinds(second, second.changed(trouble="")) == []


def test_a_swap_that_is_done_ends_with_0() -> None:
    last = begun(Mode.IN_PLACE, Phase.BAKE).advanced()

    (event,) = narrate(last, last.advanced())

    assert (event.kind, event.text, event.more["exit_code"]) == ("end", "new serves", 0)


@pytest.mark.parametrize(
    ("mode", "phase", "code"),
    [(Mode.ACROSS, Phase.LOAD, 1), (Mode.IN_PLACE, Phase.PREPARE, 1), (Mode.FIRST, Phase.LOAD, 1)],
)
def test_a_swap_that_fails_while_the_old_release_has_the_traffic_ends_with_1(
    mode: Mode, phase: Phase, code: int
) -> None:
    failed = begun(mode, phase)

    (event,) = narrate(failed, failed.reverted("n1: it ended"))

    assert (event.more["result"], event.more["exit_code"], event.more["release"]) == ("reverted", code, "old")


def test_a_way_back_in_place_ends_with_6() -> None:
    failed = begun(Mode.IN_PLACE, Phase.LOAD)
    back = failed.reverted("n1: it ended")

    assert kinds(failed, back) == ["failure", "phase"]
    assert back.swap is not None
    last = replace(back, swap=replace(back.swap, phase=Phase.PROMOTE))
    (event,) = narrate(last, last.advanced())
    assert (event.more["exit_code"], event.more["release"]) == (6, "old")


def test_a_return_that_is_given_up_says_why() -> None:
    back = begun(Mode.ACROSS, Phase.BAKE).advanced().reverted("new answers garbage")

    (event,) = narrate(back, back.reverted("old does not answer"))

    assert (event.text, event.more["exit_code"]) == ("old does not answer; new serves", 0)
    assert event.more["release"] == "new"


def test_trouble_is_told_once_with_7() -> None:
    troubled = SERVING.changed(trouble="nothing moves")

    (event,) = narrate(SERVING, troubled)

    assert (event.kind, event.more["exit_code"]) == ("trouble", 7)
    assert kinds(troubled, troubled.changed(starts=1)) == []


def test_a_stop_ends_when_every_engine_has_ended() -> None:
    two = replace(OLD, replicas=(Replica((RankSpec("n1", "old-r0"), RankSpec("n2", "old-r1"))),))
    stopping = replace(SERVING, active=two).noted("i2", "accepted", stopping=True)
    offline = stopping.offline()
    partly = offline.confirmed_stopped([RankSpec("n1", "old-r0")])

    assert "end" not in kinds(SERVING, stopping)
    assert [event.text for event in narrate(stopping, offline)] == ["stopping old-r0 on n1, old-r1 on n2"]
    assert kinds(offline, partly) == []
    (end,) = narrate(partly, partly.confirmed_stopped([RankSpec("n2", "old-r1")]))
    assert (end.kind, end.text, end.more["exit_code"]) == ("end", "chat is stopped", 0)


def test_a_stop_does_not_wait_for_a_node_that_was_given_up() -> None:
    stopping = SERVING.noted("i2", "accepted", stopping=True, without=frozenset({"n1"}))

    assert [event.text for event in narrate(stopping, stopping.offline())] == ["chat is stopped"]


def test_a_hold_is_told_when_it_begins_and_ends() -> None:
    on_hold = SERVING.noted("i3", "accepted", hold="audit")

    assert [event.text for event in narrate(SERVING, on_hold)] == ["intent i3: accepted", "on hold: audit"]
    assert kinds(on_hold, on_hold.noted("i4", "accepted", hold="")) == ["intent", "note"]
