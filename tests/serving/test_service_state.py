"""What a verb derives from the leader's report: who serves, what may be replaced, and when it is busy."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkops.errors import Busy
from sparkops.guard.lead.operator_requests import as_json
from sparkops.names import Slot
from sparkops.operator.deploy.preconditions import Current, current
from sparkops.serving.service_state import ServiceState, joins, read, serves, unreported
from sparkops.swap import wire
from sparkops.swap.fleet_state import FleetState, GatewayView, Report
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Answer, Phase
from sparkops.swap.wire import WireError
from tests.operator.deploy.states import EMPTY, REPLY, deployed, reported, serving, swapping
from tests.operator.deploy.swaps import NEW, OLD


def test_a_reply_is_read_back_as_the_leader_has_sent_it() -> None:
    state = swapping(Phase.LOAD)
    assert state.gateway is not None
    sent = {
        **REPLY,
        "journal": json.loads(wire.dump(Journal, state.journal)),
        "reports": {node: json.loads(wire.dump(Report, report)) for node, report in state.reports.items()},
        "gateway": json.loads(wire.dump(GatewayView, state.gateway)),
        "progress": {"n1": {"q-r0": "loading weights 40 %"}},
        "missing": ["n3"],
        "why_missing": {"n3": "refused"},
        "last": 3,
    }

    received = read("chat", "n1", json.loads(json.dumps(sent)))

    progress = {"n1": {"q-r0": "loading weights 40 %"}}
    assert received == replace(state, progress=progress, missing=("n3",), why_missing={"n3": "refused"})


def test_the_end_of_a_warm_release_reaches_the_client() -> None:
    state = swapping(Phase.RETIRE)
    sent = as_json(state.journal, FleetState(), {}, {}, 3, warm_until=1_780_000_000.5)

    assert read("chat", "n1", json.loads(json.dumps(sent))).warm_until == 1_780_000_000.5


def test_a_stop_is_unreported_once_only_lost_guards_could_confirm_it() -> None:
    offline = serving(stopping=True).journal.offline()
    why = f"n1 does not report: its guard stops {OLD.id}-blue-r0 once the leader reaches it"

    assert unreported(ServiceState(offline)) == ""
    assert unreported(ServiceState(offline, missing=("n2",))) == ""
    assert unreported(ServiceState(offline, missing=("n1", "n2"))) == why
    assert unreported(ServiceState(offline.confirmed_stopped(offline.stopped), missing=("n1",))) == ""
    assert unreported(ServiceState(offline.changed(without=frozenset({"n1"})), missing=("n1",))) == ""
    assert unreported(replace(serving(), missing=("n1",))) == ""


def test_a_service_that_was_never_deployed_has_an_empty_journal() -> None:
    assert read("chat", "n1", REPLY) == ServiceState(Journal("chat", "n1"))
    assert current(read("chat", "n1", REPLY)) == Current()
    assert not read("chat", "n1", REPLY).unreadable


def test_an_unreadable_journal_is_not_an_empty_one() -> None:
    assert read("chat", "n1", {**REPLY, "needs_operator": "/state/record: unreadable"}).unreadable
    assert not replace(serving(), needs_operator="no progress in phase 'start'").unreadable


def test_a_journal_of_another_format_is_refused_with_the_next_step() -> None:
    newer = {**json.loads(wire.dump(Journal, EMPTY)), "schema": SCHEMA + 1}

    with pytest.raises(WireError, match=f"Journal has format {SCHEMA + 1}, expected {SCHEMA}") as caught:
        read("chat", "n1", {**REPLY, "journal": newer})
    assert "Update sparkops" in caught.value.next_step


def test_what_serves_is_replaced_from_its_slot() -> None:
    assert current(serving()) == Current(deployed(), Slot.BLUE)


def test_what_may_serve_is_never_taken_for_failed() -> None:
    for unknown in (replace(serving(), gateway=None), reported(serving().journal, Answer.UNKNOWN)):
        assert current(unknown) == Current(deployed(), Slot.BLUE)
        assert serves(unknown, OLD.id)


def test_a_release_that_does_not_answer_makes_room_and_the_other_slot_is_taken() -> None:
    failing = reported(serving().journal, Answer.NO)

    given_up = replace(failing, needs_operator="it does not answer")

    assert current(failing) == Current(deployed(), Slot.BLUE, fails=True), "it may answer in a moment"
    assert current(given_up) == Current(None, Slot.BLUE, (deployed(),), fails=True)
    assert current(failing, frozenset(deployed().nodes)) == Current(None, Slot.BLUE, (deployed(),), fails=True)
    assert not serves(failing, OLD.id)


def test_what_the_leader_still_stops_is_named_with_its_node() -> None:
    failed = deployed(NEW, "n2")
    stopping = serving(stopped=tuple(failed.ranks))

    assert current(stopping) == Current(deployed(), Slot.BLUE, ending=frozenset({("n2", f"{NEW.id}-blue-r0")}))


def test_a_warm_release_makes_room_for_the_next_one() -> None:
    warm = swapping(Phase.RETIRE)

    assert warm.swap is None
    assert current(warm) == Current(warm.journal.active, Slot.GREEN, (deployed(),))
    assert serves(warm, NEW.id)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.LOAD, Phase.BAKE, Phase.DRAIN])
def test_a_swap_in_progress_is_busy_with_the_commands_that_follow_and_cancel_it(phase: Phase) -> None:
    with pytest.raises(Busy, match=f"a swap to {NEW.id} is in phase '{phase}'") as caught:
        current(swapping(phase))
    assert caught.value.next_step.splitlines() == [
        "sparkops status chat --follow",
        "sparkops rollback chat",
        "`--wait 10m` retries",
    ]


def test_a_swap_that_needs_an_operator_may_be_replaced_once_nothing_answers() -> None:
    stuck = swapping(Phase.BAKE, trouble="no progress")

    with pytest.raises(Busy):
        current(stuck)
    failing = replace(reported(stuck.journal, Answer.NO), needs_operator="no progress")
    swap = stuck.journal.swap
    assert swap is not None
    assert current(failing) == Current(None, Slot.BLUE, (deployed(), swap.target), fails=True)


def test_a_service_that_is_being_stopped_is_busy() -> None:
    with pytest.raises(Busy, match="chat is being stopped"):
        current(serving(stopping=True))


def test_the_same_deploy_joins_its_swap_and_no_other_one() -> None:
    loading = swapping(Phase.LOAD)

    assert joins(loading, NEW.id)
    assert not joins(loading, OLD.id)
    assert not joins(serving(), OLD.id)
    back = reported(swapping(Phase.BAKE).journal.reverted("cancelled"))
    assert not joins(back, OLD.id)
    assert not serves(back, OLD.id)
