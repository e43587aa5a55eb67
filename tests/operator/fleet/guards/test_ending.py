"""How a followed swap ends: results and exit codes from the leader's events, or from its journal where one was lost."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.operator.fleet.guards.ending import Ending, exit_code, of_event, phase_seconds, settled, swap_line
from sparkops.swap.events import narrate
from sparkops.swap.model import Mode, Phase
from tests.operator.deploy.states import serving, swapping, target
from tests.operator.deploy.swaps import NEW, OLD


def event(kind: str, at: str = "2026-11-22T07:00:00+00:00", **more: Any) -> dict[str, Any]:
    return {"n": 1, "at": at, "kind": kind, "text": "a text", "node": None, "lasting": True, **more}


def test_an_end_of_the_leader_is_taken_over_with_its_figures() -> None:
    more: dict[str, Any] = {
        "result": "done",
        "exit_code": 0,
        "release": "q-2",
        "mode": "beside",
        "seconds": {"load": 9.5},
        "cut": 2,
    }

    assert of_event(event("end", **more)) == Ending("done", 0, "q-2", "beside", seconds={"load": 9.5}, cut=2)
    assert of_event(event("phase", phase="load")) is None


def test_what_the_leader_cannot_continue_ends_with_7_and_its_next_step() -> None:
    ending = of_event(event("trouble", result="needs operator", exit_code=7, next_step="sparkops status"))

    assert ending == Ending("needs operator", 7, why="a text", next_step="sparkops status")


def test_every_end_that_the_machine_narrates_can_be_read() -> None:
    before = swapping(Phase.LOAD).journal
    records = [event.record() for event in narrate(before, before.reverted("cancelled"))]

    (ending,) = (event for record in records if (event := of_event(record)))

    assert (ending.result, ending.exit_code, ending.release, ending.why) == ("cancelled", 1, OLD.id, "cancelled")


def test_a_promoted_release_whose_old_one_is_only_kept_warm_is_done() -> None:
    assert settled(swapping(Phase.DRAIN).journal, "i1") is None
    assert settled(swapping(Phase.RETIRE).journal, "i1") == Ending("done", 0, NEW.id, "beside")


def test_a_release_without_automatic_promotion_waits_and_any_other_goes_on() -> None:
    assert settled(swapping(Phase.BAKE).journal, "i1") is None
    assert settled(swapping(Phase.BAKE, automatic=False).journal, "i1") == Ending("waiting", 0, NEW.id, "beside")
    assert settled(swapping(Phase.SWITCH, automatic=False).journal, "i1") is None


def test_a_return_is_followed_to_its_own_end() -> None:
    back = swapping(Phase.BAKE).journal.reverted("cancelled")
    while back.swap and back.swap.phase is not Phase.RETIRE:
        assert settled(back, "i1") is None
        back = back.advanced()

    assert settled(back, "i1") is None
    assert settled(back.advanced(), "i1") == Ending("cancelled", 1, OLD.id, why="cancelled")


def test_the_journal_says_how_a_swap_ended_whose_event_was_lost() -> None:
    ended = swapping(Phase.RETIRE).journal.advanced()
    failed = swapping(Phase.LOAD).journal.reverted("n1: OOM-killed")

    assert settled(ended, "i1") == Ending("done", 0, NEW.id)
    assert settled(failed, "i1") == Ending("reverted", 1, OLD.id, why="n1: OOM-killed")


def test_a_stop_ends_when_nothing_is_left_to_run() -> None:
    stopping = serving(stopping=True).journal

    offline = stopping.offline()
    assert settled(stopping, "") is None
    assert settled(offline, "") is None
    assert settled(offline.confirmed_stopped(offline.stopped), "") == Ending("stopped", 0)


def test_a_deploy_whose_service_was_stopped_has_not_succeeded_also_where_its_event_was_lost() -> None:
    loading = swapping(Phase.LOAD).journal
    stopping = loading.noted("i2", "accepted", stopping=True).cut_short("stopped by bob@desk while it started")
    offline = stopping.offline()
    stopped = offline.confirmed_stopped(offline.stopped)

    assert settled(stopping, "i1") is None
    assert settled(stopped, "i1") == Ending("stopped", 1, why="stopped by bob@desk while it started")
    assert settled(stopped, "unknown") == Ending("stopped", 1, why="stopped by an operator")
    assert settled(stopped, "") == Ending("stopped", 0)


def test_new_trouble_ends_the_following_and_old_trouble_does_not() -> None:
    journal = swapping(Phase.LOAD, trouble="no progress").journal

    step = "sparkops logs chat\nsparkops deploy RECIPE"
    assert settled(journal, "i1") == Ending("needs operator", 7, OLD.id, why="no progress", next_step=step)
    assert settled(journal, "i1", "no progress") is None


@pytest.mark.parametrize(
    ("result", "code", "wants_back", "expected"),
    [
        ("done", 0, False, 0),
        ("reverted", 1, False, 1),
        ("cancelled", 6, False, 6),
        ("cancelled", 1, True, 0),
        ("reverted", 6, True, 0),
        ("needs operator", 7, True, 7),
        ("stopped", 0, True, 0),
    ],
)
def test_who_asked_for_the_return_has_had_his_way(result: str, code: int, wants_back: bool, expected: int) -> None:
    assert exit_code(Ending(result, code), wants_back=wants_back) == expected


def test_the_seconds_of_phases_come_from_the_times_of_their_events() -> None:
    at = "2026-11-22T07:00:{:02}+00:00"
    events = [event("phase", at.format(0), phase="load"), event("note", at.format(5))]
    events += [event("phase", at.format(9), phase="verify"), event("phase", at.format(10), phase="load")]
    events += [event("phase", at.format(13), phase="switch")]

    assert phase_seconds(events) == {"load": 12.0, "verify": 1.0}


def test_a_swap_is_one_line() -> None:
    swap, down = (
        swapping(Phase.LOAD).journal.swap,
        serving().journal.begun("i", Mode.IN_PLACE, target().target, automatic=True),
    )
    assert swap is not None
    assert swap_line(swap) == f"swap to {NEW.id}, mode beside, phase 'wait until ready'"
    quiet = down.advanced().swap
    assert quiet is not None
    assert swap_line(quiet).endswith("phase 'stop traffic', the service is down until the switch")
