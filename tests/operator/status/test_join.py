"""What every node said, joined into one picture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.addresses import GatewayAddress
from sparkops.config.release import Rank, Release
from sparkops.engines.load import Load, Rates
from sparkops.errors import NotReachable, NotReady, SparkopsError
from sparkops.gateway.facts import GatewayFacts, ServiceFacts, SlotFacts
from sparkops.names import Slot, backend
from sparkops.operator.status.join import join
from sparkops.operator.status.observation import NodeReport, RankReport
from sparkops.operator.status.picture import (
    Drift,
    Health,
    Live,
    Memory,
    NodeRow,
    RankRow,
    ReplicaRow,
    ServiceRow,
    Status,
    WarmRow,
)
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode, Phase, Replica
from tests.examples import HOST, IMAGE_ID, INPUTS, container, rank, recipe
from tests.operator.deploy.states import deployed

RATES = Rates(31.26, ttft_s=0.21049, kv_use=0.5, prefix_hits=0.25, draft_accepted=None)
MEMORY = Memory(total_gib=119.7, available_gib=100.0)
RUNNING = RankReport(container(rank()), Health.OK, "serving", Load(2, 1, 500), RATES, 7200.0, 3600.0)


def ranks(*reports: RankReport) -> Status:
    return join(["n1"], {"n1": NodeReport("n1", HOST, reports)})


def report(health: Health = Health.OK, *, node: str = "n1", **changes: Any) -> RankReport:
    return RankReport(container(rank(node), **changes), health)


def test_a_healthy_service() -> None:
    blue = rank()

    assert ranks(RUNNING) == Status(
        nodes=[
            NodeRow(name="n1", reachable=True, error=None, memory=MEMORY, disk_free_gib=500.0),
        ],
        services=[
            ServiceRow(
                name="chat",
                url=None,
                state="healthy",
                live=Live(slot="blue", release=blue.release.id, image=IMAGE_ID),
                replicas=[
                    ReplicaRow(
                        release=blue.release.id,
                        slot="blue",
                        active=True,
                        ranks=[
                            RankRow(
                                node="n1",
                                rank=0,
                                container=blue.container,
                                image=IMAGE_ID,
                                state="running",
                                stage="serving",
                                health=Health.OK,
                                port=8001,
                                exit_code=None,
                                running=2,
                                waiting=1,
                                tok_s=31.3,
                                ttft_s=0.21,
                                kv_use=0.5,
                                prefix_hits=0.25,
                                up_s=3600.0,
                            )
                        ],
                        age_s=7200.0,
                    )
                ],
            )
        ],
        gateway=None,
        drift=[],
    )


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (None, ["serve.args.a=1", "model.url=https://***@hub/m"]),
        ('{"recipe": {}}', None),
        ('{"recipe": {}, "changes": []}', []),
        ("", None),
    ],
    ids=["this version's", "another version's", "without --set", "without a spec"],
)
def test_the_set_of_the_release_that_serves_is_that_of_its_journal(spec: str | None, changes: list[str] | None) -> None:
    of = Release(recipe().with_changes(["serve.args.a=1", "model.url=https://me:secret@hub/m"]), INPUTS)
    active = deployed(of)
    if spec is not None:
        active = replace(active, replicas=(Replica(tuple(replace(rank, spec=spec) for rank in active.ranks)),))
    serving = RankReport(container(Rank(of, Slot.BLUE, "n1")), Health.OK)
    states = (ServiceState(Journal("chat", "n1", revision=3, active=active)),)

    [service] = join(["n1"], {"n1": NodeReport("n1", HOST, (serving,), None, states)}).services

    assert service.live
    assert service.live.changes == changes


def test_an_empty_fleet_has_nodes_and_no_service() -> None:
    joined = join(["n2", "n1"], {name: NodeReport(name, HOST) for name in ("n1", "n2")})

    assert [node.name for node in joined.nodes] == ["n2", "n1"]
    assert (joined.services, joined.drift) == ([], [])


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            NotReachable("n2", "cannot connect to ops@n2:22: no answer", next_step="ssh n2"),
            "cannot connect to ops@n2:22: no answer",
        ),
        (SparkopsError("something else"), "something else"),
    ],
)
def test_a_node_that_cannot_be_read_says_why(error: SparkopsError, shown: str) -> None:
    joined = join(["n1", "n2"], {"n1": NodeReport("n1", HOST, (RUNNING,)), "n2": error})

    step = error.next_step or None
    assert joined.nodes[1] == NodeRow(name="n2", reachable=False, error=shown, memory=None, next_step=step)
    assert [service.state for service in joined.services] == ["healthy"]


ENDED: dict[str, Any] = {"state": "exited", "exit_code": 0}
ENDS, GONE = report(Health.FAILING), report(Health.NONE, **ENDED)
ACTIVE = deployed(node="n1")
HALTING = Journal("chat", "n1", active=ACTIVE, stopping=True).offline()


@pytest.mark.parametrize(
    ("reports", "state"),
    [
        ([report()], "healthy"),
        ([report(), report(Health.NONE, **ENDED)], "healthy"),
        ([report(Health.STARTING)], "starting"),
        ([report(Health.STARTING), report(Health.NONE, state="exited", exit_code=1)], "starting"),
        ([report(), report(Health.STARTING)], "degraded"),
        ([report(), report(Health.FAILING)], "degraded"),
        ([report(Health.FAILING)], "failed"),
        ([report(Health.FAILING), report(Health.STARTING)], "failed"),
        ([report(Health.NONE, state="exited", exit_code=1)], "failed"),
        ([report(Health.NONE, state="exited", exit_code=137, oom_killed=True)], "failed"),
        ([report(Health.NONE, **ENDED)], "stopped"),
        ([report(Health.NONE, state="exited", exit_code=137)], "stopped"),
        ([report(Health.NONE, state="exited", exit_code=143)], "stopped"),
        ([report(Health.NONE, state="created")], "stopped"),
    ],
)
def test_the_state_of_a_service(reports: list[RankReport], state: str) -> None:
    assert ranks(*reports).services[0].state == state


@pytest.mark.parametrize(
    ("engine", "journals", "state"),
    [
        (ENDS, [Journal("chat", "n1", active=ACTIVE, stopping=True)], "stopping"),
        (ENDS, [HALTING], "stopping"),
        (GONE, [HALTING], "stopping"),
        (GONE, [HALTING, Journal("chat", "n2")], "stopping"),
        (ENDS, [HALTING, Journal("chat", "n2", active=ACTIVE)], "failed"),
        (GONE, [HALTING.changed(without=frozenset({"n1"}))], "stopped"),
        (GONE, [HALTING.confirmed_stopped(HALTING.stopped)], "stopped"),
    ],
)
def test_a_service_is_stopped_once_its_guards_have_reported_it(
    engine: RankReport, journals: list[Journal], state: str
) -> None:
    states = tuple(ServiceState(journal) for journal in journals)
    node = replace(NodeReport("n1", HOST, (engine,)), states=states)

    assert join(("n1",), {"n1": node}).services[0].state == state


WAITS = "waiting for the load of agent"


@pytest.mark.parametrize(
    ("exit_code", "oom_killed", "waits", "state"),
    [
        (137, False, "waiting for memory: 3.5 GiB", "starting"),
        (137, False, "", "stopped"),
        (137, True, WAITS, "starting"),
        (137, True, "", "failed"),
        (255, False, WAITS, "starting"),
        (255, False, "", "failed"),
    ],
)
def test_a_service_whose_engine_its_guard_starts_again_has_neither_failed_nor_stopped(
    exit_code: int, oom_killed: bool, waits: str, state: str
) -> None:
    killed = report(Health.NONE, state="exited", exit_code=exit_code, oom_killed=oom_killed)
    states = (ServiceState(Journal("chat", "n1", active=ACTIVE), progress={"n1": {killed.container.name: waits}}),)
    node = replace(NodeReport("n1", HOST, (killed,)), states=states)

    (service,) = join(("n1",), {"n1": node}).services

    (shown,) = service.replicas[0].ranks
    assert (service.state, shown.progress, bool(shown.problem)) == (state, waits or None, state == "failed")


def test_what_an_engine_of_a_stopped_service_waited_for_is_history() -> None:
    states = (ServiceState(STOPPED_CHAT, progress={"n1": {GONE.container.name: WAITS}}),)
    node = replace(NodeReport("n1", HOST, (GONE,)), states=states)

    assert join(("n1",), {"n1": node}).services[0].state == "stopped"


SERVERS = ("10.0.0.1:8001",)
ONE_URL = "http://10.0.0.1:8000/v1"
STOPPED = NotReady("n1", "the guard is stopped", next_step="docker start sparkops-guard, on n1")


def test_with_its_guard_stopped_a_service_is_shown_from_its_containers_and_the_gateway() -> None:
    """The old release is warm, and an attempt failed: without the journal nobody knows whether they are needed."""
    active, old, failed = rank(), rank(slot=Slot.GREEN, model={"revision": "old"}), rank(model={"revision": "bad"})
    reports = (
        RankReport(container(active), Health.OK, "serving"),
        RankReport(container(old), Health.OK, "serving"),
        RankReport(container(failed, state="exited", exit_code=1)),
    )
    slot = SlotFacts("chat", Slot.BLUE, active.release.id, active.release.id, SERVERS, SERVERS)
    front = ServiceFacts("chat", 8000, backend("chat", Slot.BLUE), backend("chat", Slot.BLUE), {Slot.BLUE: slot})
    gateway = GatewayFacts(services={"chat": front}, files={}, loaded=True)
    node = NodeReport("n1", HOST, reports, gateway, guard_error=STOPPED)

    joined = join(["n1"], {"n1": node}, GatewayAddress("n1", "10.0.0.1"))

    assert joined.nodes[0].reachable
    assert joined.gateway
    assert joined.gateway.state == "up"
    [service] = joined.services
    assert (service.state, service.live and service.live.release) == ("healthy", active.release.id)
    assert [row.problem for replica in service.replicas for row in replica.ranks] == [None, None, None]
    detail = "the guard is stopped; what it leads is shown from containers and gateway"
    assert joined.drift == [Drift(code="GUARD_DOWN", node="n1", detail=detail, next_step=STOPPED.next_step)]


@pytest.mark.parametrize(
    ("port", "own", "path", "url"),
    [(None, 8100, "", "http://10.0.0.1:8100/v1"), (8000, 8100, "", ONE_URL), (8000, 8000, "/chat", ONE_URL)],
    ids=["a port of its own", "one address", "one address, without a port of its own"],
)
def test_the_url_of_a_service_is_the_one_address_where_the_gateway_has_one(
    port: int | None, own: int, path: str, url: str
) -> None:
    active, name = rank(), backend("chat", Slot.BLUE)
    slot = SlotFacts("chat", Slot.BLUE, active.release.id, active.release.id, SERVERS, SERVERS)
    front = ServiceFacts("chat", own, name, name, {Slot.BLUE: slot}, path=path)
    gateway = GatewayFacts(services={"chat": front}, files={}, loaded=True)

    joined = join(["n1"], {"n1": NodeReport("n1", HOST, (report(),), gateway)}, GatewayAddress("n1", "10.0.0.1", port))

    assert [service.url for service in joined.services] == [url]
    assert joined.gateway is not None
    assert joined.gateway.url == (url if port else None)


def test_a_node_that_cannot_be_read_may_lead_what_runs_on_another() -> None:
    old, new = rank(model={"revision": "old"}), rank(slot=Slot.GREEN)
    node = NodeReport("n1", HOST, (RankReport(container(old), Health.OK), RankReport(container(new), Health.OK)))

    joined = join(["n1", "n2"], {"n1": node, "n2": NotReachable("n2", "no answer")})

    assert joined.drift == []


ATTEMPTS = [
    RankReport(container(rank(model={"revision": str(number)}), state="exited", exit_code=1)) for number in range(4)
]
STOPPED_CHAT = HALTING.confirmed_stopped(HALTING.stopped).noted("i1", "accepted")


@pytest.mark.parametrize(
    ("journal", "state", "problems"),
    [
        (STOPPED_CHAT, "stopped", 0),
        (HALTING.noted("i1", "accepted"), "stopping", 0),
        (STOPPED_CHAT.noted("i2", "reverted"), "failed", 4),
    ],
    ids=["stopped", "stopping", "the next deploy failed"],
)
def test_failed_attempts_of_a_service_that_was_stopped_on_request_are_history(
    journal: Journal, state: str, problems: int
) -> None:
    node = replace(NodeReport("n1", HOST, (*ATTEMPTS, GONE)), states=(ServiceState(journal),))

    [service] = join(["n1"], {"n1": node}).services

    assert service.state == state
    rows = [row for replica in service.replicas for row in replica.ranks]
    assert len([row for row in rows if row.problem]) == problems


@pytest.mark.parametrize(("engine", "listed"), [(GONE, False), (ENDS, True)])
def test_a_forgotten_service_is_not_listed_unless_it_runs(engine: RankReport, *, listed: bool) -> None:
    state = ServiceState(Journal("chat", "n1", revision=9, forgotten=True))

    status = join(("n1",), {"n1": replace(NodeReport("n1", HOST, (engine,)), states=(state,))})

    assert [service.name for service in status.services] == (["chat"] if listed else [])


@pytest.mark.parametrize(
    ("phase", "reverting", "warm"),
    [(Phase.RETIRE, False, True), (Phase.DRAIN, False, False), (Phase.RETIRE, True, False)],
)
def test_after_the_drain_the_old_release_is_warm_and_no_swap_is_in_progress(
    phase: Phase, *, reverting: bool, warm: bool
) -> None:
    begun = Journal("chat", "n1", active=ACTIVE).begun("i", Mode.BESIDE, ACTIVE, automatic=True)
    assert begun.swap
    journal = replace(begun, swap=replace(begun.swap, phase=phase, reverting=reverting))
    state = ServiceState(journal, warm_until=1_780_000_000.0)

    [service] = join(("n1",), {"n1": replace(NodeReport("n1", HOST, (RUNNING,)), states=(state,))}).services

    expected = WarmRow(release=ACTIVE.release, until=1_780_000_000.0) if warm else None
    assert (service.warm, service.swap is None) == (expected, warm)


def test_only_a_release_that_answers_is_live() -> None:
    assert ranks(report(Health.STARTING)).services[0].live is None


def test_a_container_that_has_ended_says_how_and_has_no_load() -> None:
    [service] = ranks(report(Health.NONE, state="exited", exit_code=3)).services

    [row] = service.replicas[0].ranks
    assert (row.state, row.exit_code, row.stage, row.running, row.waiting, row.tok_s) == (
        "exited",
        3,
        None,
        None,
        None,
        None,
    )


def test_services_are_sorted_by_name() -> None:
    places = (("b", "n1"), ("a", "n1"), ("b", "n2"))
    reports = [RankReport(replace(container(rank(service=name)), node=node)) for name, node in places]

    assert [(service.name, len(service.replicas)) for service in ranks(*reports).services] == [("a", 1), ("b", 2)]


def test_a_container_that_starts_again_and_again_is_drift() -> None:
    name = container(rank()).name

    assert ranks(report(Health.STARTING, state="restarting")).drift == [
        Drift(
            code="RESTARTING",
            node="n1",
            detail=f"{name} is in a restart loop",
            next_step="sparkops logs chat",
            service="chat",
        )
    ]


def test_a_stopped_release_or_one_on_another_node_is_no_drift() -> None:
    old = RankReport(container(rank("n2", model={"revision": "old"})))
    stopped = RankReport(container(rank(model={"revision": "older"}), state="exited"))

    joined = join(
        ["n1", "n2"], {"n1": NodeReport("n1", HOST, (RUNNING, stopped)), "n2": NodeReport("n2", HOST, (old,))}
    )

    assert joined.drift == []


def test_behind_a_gateway_that_is_stopped_no_service_is_healthy() -> None:
    """Its engine answers on its node, and no client reaches it."""
    stopped = GatewayFacts(services={}, files={}, loaded=False, problem="container sparkops-gateway is not running")
    node = NodeReport("n1", HOST, (report(),), stopped)

    joined = join(["n1"], {"n1": node}, GatewayAddress("n1", "10.0.0.1", 8000))

    (service,), (drift,) = joined.services, joined.drift
    assert service.state == "failed"
    assert (drift.code, drift.next_step) == ("GATEWAY_DOWN", "docker start sparkops-gateway, on n1")


def test_an_engine_that_no_journal_wants_makes_no_service_healthy() -> None:
    """As after a rebuild of which no release remains."""
    nothing = ServiceState(Journal("chat", "n1", revision=4))

    [service] = join(["n1"], {"n1": replace(NodeReport("n1", HOST, (report(),)), states=(nothing,))}).services

    assert service.state == "stopped"
