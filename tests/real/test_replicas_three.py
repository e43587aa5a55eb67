"""Three copies of a service: ten rolling updates under a high load, and a replica that dies in each phase of one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sparkops.swap.model import Phase
from tests.fleet.fleet import Fleet
from tests.real.program import Cli, Ran
from tests.real.service import QUICK, Service, wait_for, write_inventory
from tests.real.test_replicas import replicas, served_by, servers

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]  # it needs three nodes

ALL = ("--node", "node-1", "--node", "node-2", "--node", "node-3")
ROLLING = ("--mode", "rolling")
RATE = 200.0
UPDATES = 10
PHASES = (Phase.PREPARE, Phase.QUIESCE, Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH, Phase.BAKE)
"""Not the promotion: that of a replica is over before a look at the journal would see it."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The stand-in as three replicas on three nodes."""
    nodes = Fleet.up(3)
    home = tmp_path_factory.mktemp("replicas")
    cli = Cli(write_inventory(nodes, home, lambda data: data.update(gateway={"node": "node-1"})), home)
    built = cli("build", "stand-in", "--once", timeout=1800)
    assert built.code == 0, built.err
    service = Service(cli, nodes, settings={**QUICK, "serve.replicas": "3", "swap.bake_s": "1"})
    service.sweep()
    first = service.deploy(*ALL, name="first")
    assert (first.code, first.json["mode"]) == (0, "first"), first.err
    yield service
    service.sweep()


class Watch:
    """The fewest replicas that had a share of the requests while it ran."""

    def __init__(self, service: Service) -> None:
        self.service, self.least, self.over = service, 16, threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.over.wait(0.2):
            self.least = min(self.least, servers(self.service))

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


@pytest.mark.timeout(1800)
def test_ten_rolling_updates_under_load_lose_nothing_and_two_always_serve(three: Service) -> None:
    with three.load(rate=RATE, streams=8, stream_tokens=100) as load, Watch(three) as watch:
        load.wait_for(400)
        for number in range(UPDATES):
            ran = three.deploy(*ALL, *ROLLING, name=f"update-{number}")
            assert (ran.code, ran.json["mode"]) == (0, "rolling"), (ran.json, ran.err)
        load.wait_for(400)
        report = load.report()

    print(report)
    assert report.clean, report
    assert watch.least >= 2
    assert served_by(three) == {f"update-{UPDATES - 1}"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("phase", PHASES)
def test_a_replica_that_dies_in_a_phase_leaves_a_service_that_answers(three: Service, phase: Phase) -> None:
    """The one that dies serves on node-3, or is the new one on node-1. Only requests in it fail."""
    ran: list[Ran] = []
    deploy = threading.Thread(target=lambda: ran.append(three.deploy(*ALL, *ROLLING, name=f"in-{phase.name}".lower())))
    deploy.start()
    wait_for(lambda: (swap := three.journal().swap) is not None and swap.phase.order >= phase.order, 120)
    for container in three.running():
        if container.node == "node-3":
            three.nodes.node("node-3").kill_container(container.name)
            break
    while deploy.is_alive():
        assert "" not in served_by(three, 3)
        deploy.join(0.5)

    assert ran[0].code in (0, 1), (ran[0].json, ran[0].err)
    wait_for(lambda: servers(three) == 3 and three.journal().swap is None, 240)
    assert (len(replicas(three)), three.journal().trouble) == (3, "")


@pytest.mark.timeout(900)
def test_a_bad_release_stops_at_the_first_of_three(three: Service) -> None:
    before = replicas(three)
    with three.load(rate=RATE, streams=8, stream_tokens=100) as load:
        load.wait_for(200)
        ran = three.deploy(*ALL, *ROLLING, name="bad", ANSWERS="nonsense")
        report = load.report()

    assert ran.code == 1, (ran.json, ran.err)
    assert report.clean, report
    assert replicas(three) == before
