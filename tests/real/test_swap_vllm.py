"""Blue-green with the real vLLM on two nodes: another checkpoint takes over while short requests and streams run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkops.config.inventory import Fleet
from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli
from tests.real.service import Service

pytestmark = pytest.mark.vllm

CHECKPOINTS = {"tiny-other": ("--seed", "1"), "tiny-noise": ("--noise",)}
SETTINGS = {
    "swap.bake_s": "5",
    "swap.reserve_gib": "1",
    "swap.drain_s": "60",
    "probe.passes": "1",
    # vLLM would bind each engine to the first core, where the one that answers starves the one that starts.
    "env.VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "env.OMP_NUM_THREADS": "1",
}
LOAD = {"rate": 2, "streams": 2, "stream_pause_s": 3, "stream_tokens": 100, "timeout_s": 120}


@pytest.fixture(scope="module")
def tiny(front: Cli, nodes: RealFleet, fleet: Fleet, built: str, model: str) -> Iterator[Service]:
    """The tiny model on node-2 behind the gateway, and other checkpoints of it on every node."""
    for name, options in CHECKPOINTS.items():
        made = checkpoints.make(fleet, "node-1", built, nodes.home / "checkpoints", *options)
        for node in fleet.nodes:
            checkpoints.copy(fleet, node, made, name)
    service = Service(front, nodes, str(RECIPE), "tiny", 8000, {**SETTINGS, "model.path": model})
    service.sweep()
    first = service.deploy("--node", "node-2")
    assert (first.code, first.json["mode"]) == (0, "first"), first.err
    yield service
    service.sweep()


@pytest.mark.matrix
def test_a_green_whose_weights_are_noise_is_refused_and_blue_never_stops(tiny: Service) -> None:
    """It answers every request with 200 and garbage."""
    with tiny.untouched(**LOAD):
        refused = tiny.deploy("--node", "node-1", model__path="tiny-noise")
    assert refused.code == 1, refused.err
    assert "questions" in refused.err
    assert "stopped, and stays on node-1 with its log" in refused.err


@pytest.mark.parametrize("mode", ["across", pytest.param("beside", marks=pytest.mark.matrix)])
def test_another_checkpoint_takes_over_and_no_request_fails(tiny: Service, mode: str) -> None:
    blue = tiny.journal().active
    assert blue
    other_node = "node-1" if blue.node == "node-2" else "node-2"
    green = {"tiny-qwen3": "tiny-other", "tiny-other": "tiny-qwen3"}[blue.recipe["model"]["path"]]
    with tiny.load(**LOAD) as load:
        load.wait_for(10, 60)
        done = tiny.deploy("--node", other_node if mode == "across" else blue.node, "--mode", mode, model__path=green)
        load.wait_for(load.report().good + 10, 60)
    report = load.report()
    assert (done.code, done.json["mode"], done.json["cut"]) == (0, mode, 0), done.err
    assert (report.failures, report.refusals) == ({}, 0), report.examples
    assert report.streams > 10
    assert set(report.releases) == {blue.release, done.json["release"]}
