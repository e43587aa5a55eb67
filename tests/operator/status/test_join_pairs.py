"""The ranks of a pair are shown as one replica, and one that is missing is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.release import Rank
from sparkops.gateway.facts import ServiceFacts, SlotFacts
from sparkops.names import Slot, backend
from sparkops.operator.status.join import drift_of, join
from sparkops.operator.status.observation import NodeReport, RankReport, ServiceReport
from sparkops.operator.status.picture import Health, Status
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode
from tests.examples import HOST
from tests.operator.deploy.pairs import NEW, OLD, ranks, runs
from tests.operator.deploy.swaps import at

HEAD, WORKER = BLUE = ranks(NEW, Slot.BLUE, "n1", "n2")
FIRST, SECOND = ranks(OLD, Slot.GREEN, "n1", "n2")


def rank_report(rank: Rank, health: Health = Health.OK, **changes: Any) -> RankReport:
    return RankReport(runs(rank, **changes), health)


def ended(rank: Rank) -> RankReport:
    return rank_report(rank, Health.NONE, state="exited", exit_code=1, restart_policy="no")


def status(*reports: RankReport) -> Status:
    nodes = ("n1", "n2")
    return join(
        nodes,
        {
            name: NodeReport(name, HOST, tuple(report for report in reports if report.container.node == name))
            for name in nodes
        },
    )


def find_drift(*reports: RankReport, **intended: Any) -> list[tuple[str, str]]:
    """Drift where NEW has the traffic, as code and node."""
    slot = SlotFacts("chat", Slot.BLUE, NEW.id, NEW.id, ("10.0.0.1:8001",))
    active = backend("chat", Slot.BLUE)
    front = ServiceFacts("chat", 8000, active, active, {Slot.BLUE: slot})
    journal = Journal("chat", "n1", **{"active": at(NEW, Slot.BLUE, "n1", "n2"), **intended})
    joined = ServiceReport("chat", reports, front, (ServiceState(journal),))
    return [(finding.code, finding.node) for finding in drift_of(joined)]


def test_two_ranks_of_one_release_are_one_healthy_replica_rank_0_first() -> None:
    [service] = status(rank_report(WORKER), rank_report(HEAD)).services

    assert service.state == "healthy"
    assert [(replica.release, [(rank.node, rank.rank) for rank in replica.ranks]) for replica in service.replicas] == [
        (NEW.id, [("n1", 0), ("n2", 1)])
    ]
    assert service.live is not None
    assert service.live.release == NEW.id


@pytest.mark.parametrize(
    ("reports", "node", "number"),
    [((HEAD,), "n1", 1), ((WORKER,), "n2", 0)],
    ids=["the worker is gone", "rank 0 is gone"],
)
def test_a_pair_without_one_of_its_ranks_is_degraded_and_the_rank_is_named(
    reports: tuple[Rank, ...], node: str, number: int
) -> None:
    shown = status(*map(rank_report, reports))

    assert shown.services[0].state == "degraded"
    [missing] = shown.drift
    assert (missing.code, missing.node) == ("RANK_MISSING", node)
    assert f"rank {number} of {NEW.id} (blue) is not running" in missing.detail


def test_a_rank_that_has_ended_is_as_missing_as_one_that_was_removed() -> None:
    shown = status(rank_report(HEAD), ended(WORKER))

    assert (shown.services[0].state, [finding.code for finding in shown.drift]) == ("degraded", ["RANK_MISSING"])


def test_a_pair_that_was_stopped_as_a_whole_misses_nothing() -> None:
    stopped = [rank_report(rank, Health.NONE, state="exited", exit_code=0) for rank in BLUE]

    shown = status(*stopped)

    assert (shown.services[0].state, shown.drift) == ("stopped", [])


@pytest.mark.parametrize(
    ("stopped", "state"),
    [
        ({"previous": at(NEW, Slot.BLUE, "n1", "n2")}, "stopped"),
        ({"previous": at(OLD, Slot.GREEN, "n1", "n2")}, "failed"),
    ],
    ids=["the release that was stopped", "another release"],
)
def test_a_rank_that_ended_in_error_while_its_pair_was_stopped_has_not_failed(
    stopped: dict[str, Any], state: str
) -> None:
    journal = ServiceState(Journal("chat", "n1", **stopped))
    reports = [rank_report(HEAD, Health.NONE, state="exited", exit_code=1), ended(WORKER)]
    nodes = {rank.container.node: NodeReport(rank.container.node, HOST, (rank,)) for rank in reports}
    nodes["n1"] = replace(nodes["n1"], states=(journal,))

    assert join(("n1", "n2"), nodes).services[0].state == state


def test_two_pairs_on_the_same_nodes_are_two_replicas() -> None:
    [service] = status(*map(rank_report, (HEAD, WORKER)), ended(FIRST), ended(SECOND)).services

    assert [(replica.release, len(replica.ranks)) for replica in service.replicas] == [(NEW.id, 2), (OLD.id, 2)]


def test_the_ranks_that_serve_are_no_orphans_and_a_worker_left_over_is_one() -> None:
    assert find_drift(rank_report(HEAD), rank_report(WORKER)) == []
    assert find_drift(rank_report(HEAD), rank_report(WORKER), rank_report(SECOND, restart_policy="no")) == [
        ("RANK_MISSING", "n2"),
        ("ORPHAN", "n2"),
    ]


def test_the_ranks_of_a_swap_under_way_are_no_orphans() -> None:
    begun = Journal("chat", "n1").begun("i1", Mode.BESIDE, at(OLD, Slot.GREEN, "n1", "n2"), automatic=True)
    loading = [rank_report(rank, Health.STARTING, restart_policy="no") for rank in (FIRST, SECOND)]

    assert find_drift(rank_report(HEAD), rank_report(WORKER), *loading, swap=begun.swap) == []


def test_a_live_pair_whose_rank_0_is_gone_does_not_run() -> None:
    assert find_drift(rank_report(WORKER)) == [("RANK_MISSING", "n2"), ("LIVE_NOT_RUNNING", "n2")]
