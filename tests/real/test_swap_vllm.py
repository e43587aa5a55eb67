"""Blue-green with the real vLLM on two nodes: another checkpoint takes over while short requests and streams run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import requests

from sparkops.config.inventory import Fleet
from sparkops.serving import engine_spec
from sparkops.swap.model import RankSpec
from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.operator.demo.traffic.openai_clients import Clients
from tests.real.program import RECIPE, Cli, Ran
from tests.real.service import GATEWAY, Service
from tests.real.test_ports import reached_from, reached_from_here

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]

SETTINGS = {
    "swap.bake_s": "5",
    "swap.reserve_gib": "1",
    "swap.drain_s": "60",
    "probe.passes": "1",
}
STATUS = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=30).status)"
LOAD = {"rate": 2, "streams": 2, "stream_pause_s": 3, "stream_tokens": 100, "timeout_s": 120}


@pytest.fixture(scope="module")
def tiny(front: Cli, nodes: RealFleet, fleet: Fleet, built: str, model: str) -> Iterator[Service]:
    """The tiny model on node-2 behind the gateway, and another checkpoint of it on every node."""
    checkpoints.provide(fleet, built, nodes.home / "checkpoints", "tiny-other", "--seed", "1")
    service = Service(front, nodes, str(RECIPE), "tiny", 8000, {**SETTINGS, "model.path": model})
    service.sweep()
    first = service.deploy("--node", "node-2")
    assert (first.code, first.json["mode"]) == (0, "first"), first.err
    yield service
    service.sweep()


def test_only_the_gateway_reaches_a_real_engine_on_another_node(tiny: Service) -> None:
    """And not its administrative routes, which the engine itself answers."""
    (engine,) = tiny.running()

    assert engine.node == "node-2"
    assert requests.get(f"{tiny.url}/v1/models", timeout=30).status_code == 200
    assert not reached_from_here(tiny, "node-2", engine.port)
    assert reached_from(tiny, GATEWAY, "node-2", engine.port)
    for path in ("/metrics", "/openapi.json"):
        url = f"http://127.0.0.1:{engine.port}{path}"
        assert int(tiny.nodes.node("node-2").exec("python3", "-c", STATUS, url)) == 200
        refused = requests.get(f"{tiny.url}{path}", timeout=30)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_path")


def test_a_green_whose_weights_are_noise_is_refused_and_blue_never_stops(
    tiny: Service, fleet: Fleet, built: str
) -> None:
    """It answers every request with 200 and garbage."""
    checkpoints.provide(fleet, built, tiny.nodes.home / "checkpoints", "tiny-noise", "--noise")
    old = tiny.journal().active
    assert old
    with tiny.untouched(**LOAD):
        refused = tiny.deploy("--node", "node-1", model__path="tiny-noise")
    assert refused.code == 1, refused.err
    assert "questions" in refused.err
    assert f"; {old.release} serves" in refused.err


@pytest.mark.parametrize("mode", ["across", "beside"])
def test_another_checkpoint_takes_over_and_no_request_fails(tiny: Service, mode: str) -> None:
    old = tiny.journal().active
    assert old
    (rank,) = old.ranks
    other_node = "node-1" if rank.node == "node-2" else "node-2"
    other = other_checkpoint(rank)
    with tiny.load(**LOAD) as load:
        load.wait_for(10)
        ran = tiny.deploy("--node", other_node if mode == "across" else rank.node, "--mode", mode, model__path=other)
        load.wait_for(load.report().good + 10)
    report = load.report()
    assert (ran.code, ran.json["mode"], ran.json["cut"]) == (0, mode, 0), ran.err
    assert (report.failures, report.refusals) == ({}, 0), report.examples
    assert report.streams > 10
    assert set(report.releases) == {old.release, ran.json["release"]}


def test_an_in_place_swap_that_the_smoke_suite_refuses_fails_no_request_of_openais_client(
    tiny: Service, fleet: Fleet, built: str
) -> None:
    checkpoints.provide(fleet, built, tiny.nodes.home / "checkpoints", "tiny-noise", "--noise")
    old = tiny.journal().active
    assert old
    (rank,) = old.ranks
    clients = Clients(tiny.url, tiny.name)
    with clients.running():
        clients.wait_for_more(4)
        refused = in_place(tiny, rank.node, "tiny-noise")
        clients.wait_for_more(4)
    assert refused.code == 6, refused.err
    assert "questions" in refused.err
    assert f"{old.release} serves" in refused.err
    assert {call.release for call in clients.calls} == {old.release}


def other_checkpoint(rank: RankSpec) -> str:
    """Return the one of the two checkpoints that a rank does not serve."""
    return {"tiny-qwen3": "tiny-other", "tiny-other": "tiny-qwen3"}[engine_spec.of(rank).recipe["model"]["path"]]


def in_place(service: Service, node: str, model: str, **changes: str) -> Ran:
    """Replace what serves on a node by another release, whose start the service is down for."""
    return service.deploy("--node", node, "--mode", "in-place", "--allow-downtime", model__path=model, **changes)
