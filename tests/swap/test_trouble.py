"""Each reason for which the machine needs an operator, with the commands that help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.serving.service_state import ServiceState, unreported
from sparkops.swap.effects import PointSlot, WriteJournal
from sparkops.swap.events import narrate
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView, Report
from sparkops.swap.journal import RESTARTS, Journal
from sparkops.swap.leader import needs_operator, step
from sparkops.swap.model import Answer, Deployment, Mode, Phase, RankSpec, Replica
from sparkops.swap.trouble import next_step, reason

CONTACTS = frozenset({"n2"})
LONG_S = 1e6
LOG = "docker logs --tail 50 sparkops-gateway"


def deployed(release: str, slot: Slot, *nodes: str) -> Deployment:
    return Deployment(release, slot, (Replica(tuple(RankSpec(node, f"{release}-{node}") for node in nodes)),))


OLD, NEW = deployed("q-1", Slot.BLUE, "n2"), deployed("q-2", Slot.GREEN, "n3")
SERVING = Journal("chat", "n1", peers=("n2", "n3"), revision=5, active=OLD)
STOPPED = EngineReport("q-1-n2", EngineState.STOPPED, by_hand=True)
FAILS = FleetState(
    gateway=GatewayView(Slot.BLUE, {Slot.BLUE: "q-1"}, {Slot.BLUE: Answer.NO}), contacts=CONTACTS, waited_s=LONG_S
)


def in_phase(phase: Phase, mode: Mode = Mode.ACROSS, *, reverting: bool = False) -> Journal:
    begun = SERVING.begun("i", mode, NEW, automatic=True)
    assert begun.swap
    swap = replace(begun.swap, phase=phase, reverting=reverting)
    if reverting:
        swap = replace(swap, target=OLD, source=NEW)
    return replace(begun, swap=swap)


def stuck(journal: Journal, fleet: FleetState) -> Journal:
    """Return the journal that the leader writes where it cannot continue."""
    effect = step(journal, fleet)
    assert isinstance(effect, WriteJournal)
    assert effect.journal.trouble
    return effect.journal


def exhausted() -> Journal:
    """A return whose old release has failed to start as often as it may."""
    journal = in_phase(Phase.START, Mode.IN_PLACE, reverting=True)
    for _ in range(2 + RESTARTS):  # the return, its restarts, and the end of the budget
        journal = journal.reverted("n2: q-1-n2 ended")
    return journal


UNREAD = FleetState(contacts=CONTACTS, waited_s=LONG_S)
FULL = FleetState(
    gateway=GatewayView(), contacts=CONTACTS, tried=PointSlot(OLD), tried_s=LONG_S, why="no space left on device"
)
"""The gateway's disk is full."""
BY_HAND = replace(FAILS, reports={"n2": Report("n2", "b", 1, 5, 5, (STOPPED,))})


def troubles() -> Iterator[tuple[str, Journal, str]]:
    """Yield journals with the reason in them, and their commands."""
    yield "bake", stuck(in_phase(Phase.BAKE), UNREAD), "sparkops doctor\nsparkops rollback chat\nsparkops deploy RECIPE"
    yield "drain", stuck(in_phase(Phase.DRAIN), UNREAD), "sparkops doctor\nsparkops deploy RECIPE"
    yield "a return", stuck(in_phase(Phase.SWITCH, reverting=True), UNREAD), "sparkops doctor\nsparkops deploy RECIPE"
    yield "a stop", stuck(replace(SERVING, stopping=True), UNREAD), "sparkops doctor --fix"
    yield "both failed", exhausted(), "sparkops logs chat\nsparkops deploy RECIPE"
    yield "only one", stuck(SERVING, FAILS), "sparkops logs chat\nsparkops deploy RECIPE"
    yield "refused by the gateway", stuck(SERVING, FULL), f"df and {LOG}, on n1; sparkops doctor"
    yield "stopped by hand", stuck(replace(SERVING, previous=NEW), BY_HAND), "sparkops deploy RECIPE"
    previous = stuck(replace(SERVING, previous=NEW), FAILS)
    yield "with a previous", previous, "sparkops logs chat\nsparkops rollback chat"


@pytest.mark.parametrize(("journal", "step"), [pytest.param(*rest, id=name) for name, *rest in troubles()])
def test_each_trouble_has_the_commands_that_help(journal: Journal, step: str) -> None:
    assert next_step(journal, needs_operator(journal, FleetState(contacts=CONTACTS))) == step
    [event] = [event for event in narrate(replace(journal, trouble=""), journal) if event.kind == "trouble"]
    assert event.more["next_step"] == step


def test_a_release_on_a_lost_node_is_left_without_it() -> None:
    journal = stuck(replace(SERVING, previous=NEW), FAILS)

    assert next_step(journal, journal.trouble, ("n2", "n9")).splitlines()[-1] == "sparkops rollback chat --without n2"


def test_a_leader_that_has_lost_its_journal_is_rebuilt() -> None:
    newer = FleetState({"n2": Report("n2", "b", 1, 9)}, contacts=CONTACTS)

    assert next_step(SERVING, needs_operator(SERVING, newer)) == "sparkops gateway rebuild n1"


def test_a_leader_that_is_not_confirmed_names_the_guards_to_start_or_to_give_up() -> None:
    journal = replace(SERVING, without=frozenset({"n3"}))

    assert next_step(journal, needs_operator(journal, FleetState())).splitlines() == [
        "docker start sparkops-guard, on n2; sparkops doctor",
        "If they are lost: sparkops deploy RECIPE --without n2",
    ]


def test_a_stop_that_no_guard_confirms_is_looked_at_by_doctor() -> None:
    stopped = ServiceState(replace(SERVING, stopping=True).offline(), missing=("n2",))
    why = unreported(stopped)

    assert why.startswith("n2 does not report: ")
    assert next_step(stopped.journal, why, stopped.missing) == "sparkops doctor"


def test_a_reason_that_names_its_own_step_keeps_it() -> None:
    why = "/var/lib/x: unreadable: both copies are damaged\nnext: docker exec sparkops-guard mv x x.bad"

    assert (reason(why), next_step(SERVING, why)) == (why.splitlines()[0], "docker exec sparkops-guard mv x x.bad")


def test_the_step_of_an_engine_that_failed_is_followed_by_the_way_out_of_the_swap() -> None:
    journal = replace(exhausted(), trouble="n2: q-1-n2 was OOM-killed\nnext: lower gpu-memory-utilization")

    assert next_step(journal, journal.trouble).splitlines() == [
        "lower gpu-memory-utilization",
        "sparkops logs chat",
        "sparkops deploy RECIPE",
    ]


def test_an_error_of_the_guard_itself_is_ended_by_its_restart() -> None:
    step = "docker restart sparkops-guard, on n1; sparkops history chat"

    assert next_step(SERVING, "Traceback (most recent call last):\n ...") == step
