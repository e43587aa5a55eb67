"""This client cannot read a node that the fleet reaches, or its inventory contradicts the fleet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from sparkops.config.addresses import GatewayAddress
from sparkops.config.release import Rank
from sparkops.errors import NotReachable, SparkopsError
from sparkops.gateway.facts import GatewayFacts, ServiceFacts, SlotFacts
from sparkops.names import Slot, backend
from sparkops.operator.status.join import join
from sparkops.operator.status.observation import NodeReport, RankReport
from sparkops.operator.status.picture import Health, ServiceRow, Source, Status
from sparkops.operator.status.view import lines
from sparkops.serving.service_state import ServiceState
from sparkops.swap.fleet_state import EngineReport, EngineState, GatewayView, Report
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer
from tests.examples import HOST, container, rank
from tests.operator.deploy.swaps import at

GATEWAY = GatewayAddress("n1", "10.0.0.1")
NAMES = ("n1", "n2", "n3")
ACTIVE = rank("n2")
JOURNAL = Journal("chat", "n1", ("n2", "n3"), revision=4, active=at(ACTIVE.release, Slot.BLUE, "n2"))
ENDED = replace(JOURNAL, active=None, previous=JOURNAL.active, revision=7)
NO_ANSWER = "cannot connect to ops@n2:22: no answer"


def front(of: Rank = ACTIVE) -> GatewayFacts:
    """A gateway that sends requests to a release, to that on n2."""
    release, servers = of.release.id, ("10.0.0.2:8001",)
    name, facts = backend("chat", of.slot), SlotFacts("chat", of.slot, release, release, servers, servers)
    services = {"chat": ServiceFacts("chat", 8000, name, name, {of.slot: facts})}
    return GatewayFacts(services=services, files={}, loaded=True)


def leads(
    journal: Journal = JOURNAL, state: EngineState | None = EngineState.HEALTHY, answer: Answer = Answer.YES
) -> ServiceState:
    """What the leader reports: the engine of n2 in this state, or no report of n2."""
    engines = (EngineReport(ACTIVE.container, state),) if state else ()
    reports = {"n2": Report("n2", "boot", 1, 4, 4, engines)} if state else {}
    view = GatewayView(Slot.BLUE, {Slot.BLUE: ACTIVE.release.id}, {Slot.BLUE: answer})
    return ServiceState(journal, reports=reports, gateway=view)


def fleet(lost: Collection[str], leader: ServiceState | None = None) -> dict[str, NodeReport | SparkopsError]:
    """Each node as this client reads it: those of `lost` not at all."""
    runs = RankReport(container(ACTIVE, restart_policy="no"), Health.OK, "serving")
    journal = (leader or leads()).journal
    reports: dict[str, NodeReport | SparkopsError] = {
        "n1": NodeReport("n1", HOST, (), front(), (leader or leads(),)),
        "n2": NodeReport("n2", HOST, (runs,), copies=(journal,)),
        "n3": NodeReport("n3", HOST, copies=(journal,)),
    }
    return {**reports, **{name: NotReachable(name, NO_ANSWER, next_step="Check that it is on.") for name in lost}}


def only(status: Status) -> ServiceRow:
    (service,) = status.services
    return service


def text(status: Status) -> str:
    return "\n".join("".join(cell for cell, _ in line) for line in lines(status))


CUTS = {
    "no node": ((), "healthy"),
    "the engine's node": (("n2",), "healthy"),
    "the gateway's node": (("n1",), "healthy"),
    "all but the gateway's": (("n2", "n3"), "healthy"),
    "all but the engine's": (("n1", "n3"), "healthy"),
    "all but one without an engine": (("n1", "n2"), "unknown"),
}


@pytest.mark.parametrize(("lost", "state"), CUTS.values(), ids=CUTS)
def test_what_this_client_cannot_read_is_reported_by_the_leader_or_unknown_and_never_stopped(
    lost: Collection[str], state: str
) -> None:
    status = join(NAMES, fleet(lost), GATEWAY)

    assert only(status).state == state
    assert status.drift == []
    assert [node.name for node in status.nodes if not node.reachable] == [*lost]
    shown = text(status)
    assert "stopped" not in shown
    assert [line for line in shown.splitlines() if "next:" in line] == ["  next: Check that it is on."] * bool(lost)


def test_the_engine_of_a_node_that_was_not_read_is_shown_as_its_guard_reports_it() -> None:
    service = only(join(NAMES, fleet(("n2",)), GATEWAY))

    assert service.live
    assert service.live.release == ACTIVE.release.id
    assert service.unread == "n2 cannot be read from here; n1 reports: it answers through the gateway"
    [row] = service.replicas[0].ranks
    assert (row.node, row.state, row.health, row.source) == ("n2", "running", Health.OK, Source.REPORTED)


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (Answer.YES, "unknown", "it answers through the gateway, no report from n2"),
        (Answer.UNKNOWN, "unknown", "no report from n2"),
        (Answer.NO, "failed", "it does not answer through the gateway, no report from n2"),
    ],
)
def test_a_node_that_neither_this_client_nor_the_leader_reaches_is_unknown(
    answer: Answer, state: str, words: str
) -> None:
    status = join(NAMES, fleet(("n2",), leads(state=None, answer=answer)), GATEWAY)

    service = only(status)
    assert (service.state, status.drift) == (state, [])
    assert service.unread == f"n2 cannot be read from here; n1 reports: {words}"
    [row] = service.replicas[0].ranks
    assert (row.state, row.source) == ("unknown", Source.UNKNOWN)


def test_an_engine_that_the_leader_reports_as_stopped_gets_no_next_step_of_this_client() -> None:
    status = join(NAMES, fleet(("n2",), leads(state=EngineState.STOPPED)), GATEWAY)

    assert [row.code for row in status.drift] == []


def test_a_service_that_the_leader_has_stopped_is_stopped_also_if_a_node_was_not_read() -> None:
    ended = replace(ENDED, outcomes=JOURNAL.noted("i", "accepted").outcomes)

    service = only(join(NAMES, fleet(("n2",), leads(ended, EngineState.STOPPED)), GATEWAY))

    assert (service.state, service.next_step) == ("stopped", "sparkops restart chat")


def test_a_stopped_service_names_what_starts_it() -> None:
    held = replace(ENDED, hold="benchmark, by ann")

    steps = [
        only(join(NAMES, fleet((), leads(journal, None)) | {"n2": NodeReport("n2", HOST)}, GATEWAY)).next_step
        for journal in (ENDED, held, replace(ENDED, previous=None))
    ]

    assert steps == ["sparkops restart chat", "sparkops hold chat --off\nsparkops restart chat", "sparkops up RECIPE"]


def test_without_the_leader_a_container_that_has_ended_is_no_stopped_service() -> None:
    """The guard of n3 keeps no copy, as before it has joined."""
    ended = RankReport(container(rank("n3"), state="exited"))
    reports = {**fleet(("n1", "n2")), "n3": NodeReport("n3", HOST, (ended,))}

    service = only(join(NAMES, reports, GATEWAY))

    assert service.state == "unknown"
    assert service.unread == "not every node could be read from here; it may run on another one"


def test_an_inventory_with_fewer_nodes_than_the_fleet_has_knows_no_more_of_the_others() -> None:
    reports = {name: report for name, report in fleet(()).items() if name != "n2"}

    status = join(("n1", "n3"), reports, GATEWAY)

    assert (only(status).state, status.drift) == ("healthy", [])


# The inventory contradicts the fleet

SWAPPED = {"spark-1": "n2", "spark-2": "n1", "spark-3": "n3"}


def renamed(reports: Mapping[str, NodeReport | SparkopsError]) -> dict[str, NodeReport | SparkopsError]:
    """The same nodes under the names of another inventory."""
    found: dict[str, NodeReport | SparkopsError] = {}
    for name, place in SWAPPED.items():
        report = reports[place]
        found[name] = replace(report, name=name, fleet_name=place) if isinstance(report, NodeReport) else report
    return found


def test_names_that_are_not_the_fleets_are_the_finding_and_nothing_is_an_orphan() -> None:
    orphan = RankReport(container(rank("n2", model={"revision": "old"}), restart_policy="no"), Health.OK)
    reports = fleet(())
    assert isinstance(reports["n2"], NodeReport)
    reports["n2"] = replace(reports["n2"], ranks=(*reports["n2"].ranks, orphan))

    status = join([*SWAPPED], renamed(reports), GatewayAddress("spark-2", "10.0.0.1"))

    assert only(status).state == "healthy"
    assert [(row.code, row.node, row.detail) for row in status.drift] == [
        ("NODE_NAME", name, f"the fleet calls this node {place}") for name, place in SWAPPED.items()
    ]
    assert text(status).startswith("drift NODE_NAME on spark-1: the fleet calls this node n2\n  next: Rename spark-1")
    assert [row.code for row in join(NAMES, reports, GATEWAY).drift] == ["ORPHAN"]


@pytest.mark.parametrize("lost", [(), ("n2",), ("n1",)], ids=["all read", "that of the inventory lost", "leader lost"])
def test_a_wrong_node_of_the_gateway_is_the_finding_and_the_node_that_leads_is_named(lost: Collection[str]) -> None:
    status = join(NAMES, fleet(lost), GatewayAddress("n3", "10.0.0.3"))

    assert [(row.code, row.detail) for row in status.drift] == [
        ("GATEWAY_NODE", "n1 leads chat: gateway.node is n3, expected n1")
    ]
    assert status.drift[0].next_step.startswith("Set `gateway.node: n1` in the inventory")
    assert status.gateway
    assert (status.gateway.node, status.gateway.state) == ("n1", "unreachable" if "n1" in lost else "up")
    assert only(status).state == "healthy"
    assert (status.gateway.url, only(status).url) == (None, None)


def test_a_leader_that_was_replaced_and_returns_does_not_make_the_inventory_wrong() -> None:
    reports = fleet(())
    assert isinstance(reports["n3"], NodeReport)
    reports["n3"] = replace(reports["n3"], states=(ServiceState(replace(JOURNAL, leader="n3", term=0)),), copies=())

    assert [row.code for row in join(NAMES, reports, GATEWAY).drift] == []


@pytest.mark.parametrize("known", ["the copy of its node", "the containers that the leader stops"])
def test_a_container_that_was_stopped_between_two_reads_is_no_orphan(known: str) -> None:
    """n2 was read before it stopped the engine, n1 after that was confirmed."""
    swap = rank("n3", Slot.GREEN, model={"revision": "new"})
    later = replace(JOURNAL, active=at(swap.release, Slot.GREEN, "n3"), revision=9)
    if known != "the copy of its node":
        assert JOURNAL.active
        later = replace(later, stopped=tuple(JOURNAL.active.ranks))
    reports = fleet((), leads(later, None))
    copy = JOURNAL if known == "the copy of its node" else later
    assert isinstance(reports["n2"], NodeReport)
    reports["n2"] = replace(reports["n2"], copies=(copy,))
    green = RankReport(container(swap, restart_policy="no"), Health.OK, "serving")
    reports["n3"] = NodeReport("n3", HOST, (green,))
    assert isinstance(reports["n1"], NodeReport)
    reports["n1"] = replace(reports["n1"], gateway=front(swap))

    assert "ORPHAN" not in [row.code for row in join(NAMES, reports, GATEWAY).drift]
