"""Two GPUs, each the only one of a node made of a container: a replica over both nodes, and a swap between them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sparkops.config import inventory, recipe_file
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.network import subnet
from tests.lab.gpu import models
from tests.lab.gpu import nodes as two_nodes
from tests.lab.gpu.conftest import HOME, build, sized
from tests.lab.gpu.evidence import Evidence
from tests.lab.gpu.lab import RECIPES, Lab
from tests.lab.gpu.machine import Gpu
from tests.lab.gpu.options import Options
from tests.real.program import Cli
from tests.real.service import wait_for

pytestmark = pytest.mark.gpu
PAIRS = {"vllm": "gpu-tp2.yaml", "sglang": "gpu-tp2-sglang.yaml"}
"""The recipe over both nodes by engine of the recipe for one."""
ANOTHER = {"vllm": {"serve.executor": "mp"}, "sglang": {"env.RELEASE": "two"}}
"""By engine: what makes another release of it. vLLM's ranks are joined by Ray at first."""
WARM_S = 20
RETIRED_S = 60.0


@pytest.fixture(scope="module")
def recipe(given: Options) -> Path:
    """The recipe over both nodes."""
    return RECIPES / PAIRS[recipe_file.load(RECIPES / f"{given.recipe}.yaml").engine]


@pytest.fixture(scope="module")
def pair(
    nodes: RealFleet, recipe: Path, given: Options, index: int | None, gpus: tuple[Gpu, ...], evidence: Evidence
) -> Lab:
    """The image on both nodes with the tiny model, and the recipe of a replica over both."""
    with evidence.step("the parent image on both nodes"):
        two_nodes.give(nodes, recipe_file.load(recipe).image.parent)
    section = build(given, index, str(subnet(nodes.name)[1]))
    file = two_nodes.inventory(nodes, "two.yaml", build=section, fabric={"allow_tcp": True})
    cli = Cli(file, HOME, env={"PATH": os.environ["PATH"]})
    address = nodes.node(two_nodes.GATEWAY).address
    settings = {**sized(gpus), "swap.keep_old_s": str(WARM_S)}
    lab = Lab(cli, evidence, two_nodes.clients(nodes), recipe, "gpu-tp2", 8500, address, settings)
    built = lab.run("build the CUDA image on both nodes", "build", str(lab.recipe), "--json", timeout=3600).json
    with evidence.step("train the tiny model in the image on both nodes"):
        for node in nodes.nodes:
            models.make(inventory.load(file), node.name, built["tag"], "tiny_model.py", "/out/tiny-qwen3")
    return lab


def test_a_pair_joins_two_gpus_and_another_one_takes_over_beside_it_under_load(pair: Lab) -> None:
    assert [row["transport"] for row in pair.doctor()["pairs"]] == ["TCP"]
    first = pair.deploy("TP=2 over two nodes")
    assert first.json["release"] == pair.check_answer("ask the pair")
    assert len(pair.live()) == 2
    with pair.loaded("another pair beside it", rate=10, streams=2):
        deployed = pair.deploy("another pair beside it", "--mode", "beside", change=ANOTHER[pair.engine])
    assert deployed.json["release"] == pair.check_answer("ask the other pair")
    with pair.loaded("back to the warm pair", rate=10, streams=2):
        pair.run("roll back to the first pair", "rollback", pair.service)
    assert first.json["release"] == pair.check_answer("ask the first pair again")


def test_a_pair_stops_and_is_shown_as_stopped(pair: Lab) -> None:
    wait_for(lambda: pair.running() == len(pair.nodes), RETIRED_S)
    began_s = time.monotonic()
    pair.run("stop the pair", "stop", pair.service)
    wait_for(lambda: not pair.running(), RETIRED_S)
    took_s = time.monotonic() - began_s
    pair.save("stopped pair")
    with pair.evidence.step("state after the stop") as step:
        state = pair.status()["state"]
        step.figures.append(f"{state}, exit codes {_exit_codes(pair)}, no rank runs {took_s:.1f} s after the command")
        assert state == "stopped"


def _exit_codes(lab: Lab) -> dict[str, str]:
    return {
        name: lab.nodes[node]("inspect", "--format", "{{.State.ExitCode}}", name) for node, name in lab.containers()
    }


def test_a_swap_from_gpu_to_gpu_loses_no_request(pair: Lab) -> None:
    alone = {**pair.settings, "serve.tensor_parallel": "1", "service": "one", "serve.port": "8600"}
    one = pair.with_(service="one", port=8600, settings=alone)
    one.deploy("deploy to the first GPU", "--node", "node-1")
    one.check_answer("ask the first GPU")
    with one.loaded("across, from GPU to GPU"):
        deployed = one.deploy(
            "across, from GPU to GPU", "--mode", "across", "--node", "node-2", change={"env.RELEASE": "two"}
        )
    assert deployed.json["release"] == one.check_answer("ask the second GPU")
    assert [node for node, _ in one.live()] == ["node-2"]
