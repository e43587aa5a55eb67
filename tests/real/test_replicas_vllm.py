"""Two copies of a service with the real vLLM: rolling updates under load, one killed meanwhile, a bad release."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sparkops.config.inventory import Fleet
from sparkops.swap.model import Phase
from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.operator.demo.traffic.openai_clients import Clients
from tests.real.program import RECIPE, Cli, Ran
from tests.real.service import Service, wait_for
from tests.real.test_replicas import BOTH, replicas, servers
from tests.real.test_swap_vllm import SETTINGS

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]

ROLLING = ("--mode", "rolling")
UPDATES = 10
OTHER = {"tiny-qwen3": "tiny-other", "tiny-other": "tiny-qwen3"}


@pytest.fixture(scope="module")
def two(front: Cli, nodes: RealFleet, fleet: Fleet, built: str, model: str) -> Iterator[Service]:
    """The tiny model on two nodes, and two further checkpoints of it there, of which one is noise."""
    checkpoints.provide(fleet, built, nodes.home / "checkpoints", "tiny-other", "--seed", "1")
    checkpoints.provide(fleet, built, nodes.home / "checkpoints", "tiny-noise", "--noise")
    settings = {**SETTINGS, "model.path": model, "serve.replicas": "2"}
    service = Service(front, nodes, str(RECIPE), "tiny", 8000, settings)
    service.sweep()
    first = service.deploy(*BOTH)
    assert (first.code, first.json["mode"]) == (0, "first"), first.err
    yield service
    service.sweep()


@pytest.mark.timeout(2400)
def test_ten_rolling_updates_fail_no_request_of_openais_client(two: Service) -> None:
    clients, path = Clients(two.url, two.name), "tiny-qwen3"
    with clients.running(4):
        for _ in range(UPDATES):
            clients.wait_for_more(4)
            path = OTHER[path]
            ran = two.deploy(*BOTH, *ROLLING, model__path=path)
            assert (ran.code, ran.json["mode"]) == (0, "rolling"), ran.err
        clients.wait_for_more(4)

    print(f"{UPDATES} updates: {len(clients.calls)} answers, 0 failed; the last one {ran.took_s:.0f} s")
    assert set(replicas(two).values()) == {ran.json["release"]}


@pytest.mark.timeout(900)
def test_a_release_whose_weights_are_noise_stops_at_the_first_replica(two: Service) -> None:
    before, clients = replicas(two), Clients(two.url, two.name)
    with clients.running(4):
        clients.wait_for_more(4)
        ran = two.deploy(*BOTH, *ROLLING, model__path="tiny-noise")
        clients.wait_for_more(4)

    assert ran.code == 1, (ran.json, ran.err)
    assert "questions" in ran.err
    assert replicas(two) == before
    assert {call.release for call in clients.calls} == set(before.values())


@pytest.mark.timeout(900)
def test_a_replica_that_is_killed_while_the_other_is_replaced_comes_back(two: Service) -> None:
    ran: list[Ran] = []
    first = two.deploy(*BOTH, *ROLLING)
    assert first.code == 0, first.err
    deploy = threading.Thread(target=lambda: ran.append(two.deploy(*BOTH, *ROLLING, model__path="tiny-other")))
    deploy.start()
    wait_for(lambda: (swap := two.journal().swap) is not None and swap.phase.order >= Phase.LOAD.order, 120)
    serving = next(container for container in two.running() if container.release in set(replicas(two).values()))
    two.nodes.node(serving.node).kill_container(serving.name)
    deploy.join(600)

    assert ran[0].code in (0, 1), (ran[0].json, ran[0].err)
    wait_for(lambda: servers(two) == 2 and two.journal().swap is None, 300)
    assert (len(replicas(two)), two.journal().trouble) == (2, "")
