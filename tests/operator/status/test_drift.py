"""Which disagreements status names from the journals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.gateway.facts import ServiceFacts, SlotFacts
from sparkops.names import Slot, backend
from sparkops.operator.status import join
from sparkops.operator.status.observation import RankReport, ServiceReport
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode
from tests.examples import container, rank
from tests.operator.deploy.swaps import NEW as NEW_RELEASE
from tests.operator.deploy.swaps import at

NEW = at(NEW_RELEASE, Slot.GREEN, "n2")
JOURNAL = Journal("chat", "n1", revision=1)


def find_drifts(journal: Journal, **state: Any) -> list[tuple[str, str, str]]:
    report = ServiceReport("chat", (), None, (ServiceState(journal, **state),))
    drifts = [*join.drift_of(report)]
    assert all(difference.next_step for difference in drifts)
    return [(difference.code, difference.node, difference.detail) for difference in drifts]


def test_a_release_with_the_traffic_that_does_not_run_is_reported_on_its_node() -> None:
    """The ranks of other releases come first, and run."""
    active, other = rank("n2"), rank("n1", model={"revision": "other"})
    slot = SlotFacts("chat", Slot.BLUE, active.release.id, active.release.id, ("10.0.0.2:8001",))
    name = backend("chat", Slot.BLUE)
    front = ServiceFacts("chat", 8000, name, name, {Slot.BLUE: slot})
    ranks = (RankReport(container(other)), RankReport(container(active, state="exited", exit_code=1)))

    def live_not_running(*reports: RankReport) -> list[tuple[str, str]]:
        drifts = join.drift_of(ServiceReport("chat", reports, front))
        return [(difference.node, difference.detail) for difference in drifts if difference.code == "LIVE_NOT_RUNNING"]

    detail = f"chat: {active.release.id} is active but not running"
    assert live_not_running(*ranks) == [("n2", detail)]
    assert live_not_running(ranks[0]) == [("", detail)]


@pytest.mark.parametrize(("missing", "without"), [((), ""), (("n2",), " --without n2")])
def test_a_release_with_the_traffic_on_a_lost_node_is_deployed_without_it(
    missing: tuple[str, ...], without: str
) -> None:
    slot = SlotFacts("chat", Slot.GREEN, NEW.release, NEW.release, ("10.0.0.2:8001",))
    name = backend("chat", Slot.GREEN)
    front = ServiceFacts("chat", 8000, name, name, {Slot.GREEN: slot})
    state = ServiceState(replace(JOURNAL, active=NEW), missing=missing)

    [only] = join.drift_of(ServiceReport("chat", (), front, (state,)))

    assert (only.code, only.next_step) == (
        "LIVE_NOT_RUNNING",
        f"sparkops logs chat\nsparkops deploy RECIPE{without}",
    )


def test_a_swap_in_progress_is_no_drift() -> None:
    assert find_drifts(JOURNAL.begun("i1", Mode.ACROSS, NEW, automatic=False)) == []


SILENT = "q-1 does not answer"
WAITS = "no progress in phase 'start'"
SWAPPING = replace(JOURNAL, active=at(NEW_RELEASE, Slot.BLUE, "n1")).begun("i1", Mode.ACROSS, NEW, automatic=False)
FIRST = JOURNAL.begun("i1", Mode.FIRST, NEW, automatic=False)


@pytest.mark.parametrize(
    ("journal", "why", "missing", "step"),
    [
        (SWAPPING, WAITS, (), "sparkops doctor\nsparkops rollback chat"),
        (FIRST, WAITS, (), "sparkops doctor\nsparkops deploy RECIPE"),
        (SWAPPING, "exited", ("n2",), "sparkops logs chat\nsparkops deploy RECIPE --without n2"),
        (replace(JOURNAL, active=NEW), SILENT, (), "sparkops logs chat\nsparkops deploy RECIPE"),
        (replace(JOURNAL, active=NEW), SILENT, ("n2",), "sparkops logs chat\nsparkops deploy RECIPE --without n2"),
        (replace(JOURNAL, active=NEW), SILENT, ("n3",), "sparkops logs chat\nsparkops deploy RECIPE"),
    ],
    ids=[
        "a swap that waits",
        "a first deploy that waits",
        "a swap to a lost node",
        "no answer",
        "a lost node",
        "another lost node",
    ],
)
def test_what_the_leader_cannot_do_needs_an_operator(
    journal: Journal, why: str, missing: tuple[str, ...], step: str
) -> None:
    report = ServiceReport("chat", (), None, (ServiceState(journal, needs_operator=why, missing=missing),))

    [only] = join.drift_of(report)

    assert (only.code, only.node, only.detail) == ("NEEDS_PERSON", "n1", f"chat: {why}")
    assert only.next_step == step


def test_a_guard_that_the_leader_does_not_reach_is_named() -> None:
    (only,) = find_drifts(JOURNAL, missing=("n2",), why_missing={"n2": "refused", "n3": "of another service"})

    assert only == ("GUARD_NOT_REACHED", "n2", "chat: n1 cannot reach the guard of n2, swaps wait: refused")


def test_a_guard_that_the_leader_has_not_asked_yet_is_no_drift() -> None:
    assert find_drifts(JOURNAL, missing=("n1", "n2")) == []


def test_a_restart_policy_is_named_since_the_guard_starts_engines() -> None:
    reports = (RankReport(container(rank("n1"), restart_policy="always")),)

    assert [*join.drift_of(ServiceReport("chat", reports, None))] == []
    (only,) = join.drift_of(ServiceReport("chat", reports, None, (ServiceState(JOURNAL),)))
    assert (only.code, only.node) == ("RESTART_POLICY", "n1")


def test_a_former_leader_that_returns_is_no_reason_to_give_up_the_present_one() -> None:
    """Its own next step would be to deploy without the node that leads."""
    why = "no other guard confirms that n1 leads; give up lost nodes with --without"
    former = ServiceState(replace(JOURNAL, peers=("n2",), term=1, revision=9), needs_operator=why)
    present = ServiceState(replace(JOURNAL, leader="n2", term=2, revision=3))

    found = {row.code: row for row in join.drift_of(ServiceReport("chat", (), None, (former, present)))}

    assert "NEEDS_PERSON" not in found
    assert (found["FORMER_LEADER"].node, found["FORMER_LEADER"].next_step) == ("n1", "sparkops gateway move n2")
    alone = [row.code for row in join.drift_of(ServiceReport("chat", (), None, (former,)))]
    assert "NEEDS_PERSON" in alone
