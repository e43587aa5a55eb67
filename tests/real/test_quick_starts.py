"""Recipes of other tools in a finished image that is laid out like theirs: imported, pulled, gated and served.

The recipes are written as spark-vllm-docker's and docs/migrate.md's are, for the tiny model and for CPUs. The image has
the same wheels as ours where theirs has them: in the system's Python, with root as its user.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
import yaml

from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.real import pairs
from tests.real.program import Cli
from tests.real.service import Service, write_inventory
from tests.real.test_own_image import REGISTRY, Registry, registry

__all__ = ["registry"]

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]

IMAGE = f"{REGISTRY}/eugr/spark-vllm:latest"
LAYOUT = """
FROM {ours} AS ours
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv libnuma1
COPY --from=ours /opt/venv/lib/python3.11/site-packages /usr/local/lib/python3.11/dist-packages
COPY --from=ours /opt/venv/bin /usr/local/bin
RUN rm /usr/local/bin/python* && sed -i '1s|^#!/opt/venv/bin/python.*|#!/usr/bin/python3|' /usr/local/bin/*
ENV DEBIAN_FRONTEND=noninteractive PIP_BREAK_SYSTEM_PACKAGES=1 UV_SYSTEM_PYTHON=1
WORKDIR /workspace/vllm
"""
ONE = """
recipe_version: "1"
name: Tiny-Qwen3
description: vLLM serving Tiny-Qwen3
model: sparkops/tiny-qwen3
container: vllm-node
solo_only: true
mods: []
defaults:
  port: 9150
  host: 0.0.0.0
  gpu_memory_utilization: 0.1
  max_model_len: 1024
env:
  VLLM_CPU_KVCACHE_SPACE: "1"
command: |
  vllm serve sparkops/tiny-qwen3 \\
    --host {host} \\
    --port {port} \\
    --max-model-len {max_model_len} \\
    --gpu-memory-utilization {gpu_memory_utilization} \\
    --dtype bfloat16 --enforce-eager
"""
TWO = """
recipe_version: "1"
name: Tiny-Qwen3
description: vLLM serving Tiny-Qwen3 on two nodes
model: sparkops/tiny-qwen3
container: vllm-node
cluster_only: true
defaults:
  port: 9160
  host: 0.0.0.0
  tensor_parallel: 2
  gpu_memory_utilization: 0.1
  max_model_len: 1024
env:
  VLLM_CPU_KVCACHE_SPACE: "1"
  TORCHDYNAMO_DISABLE: "1"
command: |
  vllm serve sparkops/tiny-qwen3 \\
    --host {host} --port {port} \\
    -tp {tensor_parallel} --distributed-executor-backend ray \\
    --max-model-len {max_model_len} \\
    --gpu-memory-utilization {gpu_memory_utilization} \\
    --dtype bfloat16 --enforce-eager
"""
LINE = """
recipe_version: "1"
model: sparkops/tiny-qwen3
description: What a docker run line served
env:
  VLLM_CPU_KVCACHE_SPACE: "1"
command: |
  vllm serve sparkops/tiny-qwen3 --port 9170 --gpu-memory-utilization 0.1 --max-model-len 1024 --dtype bfloat16 \\
    --enforce-eager
"""
CPUS = {
    "memory": {"claim_gib": 3.5, "basis": "as recipes/tiny-qwen3-cpu.yaml"},
    "swap": {"reserve_gib": 1, "bake_s": 5},
}
"""What the owner of nodes without a GPU changes in an imported recipe, beside its questions."""


@pytest.fixture(scope="module")
def cli(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """sparkops with a gateway on node-1, and plain TCP between the nodes."""
    home = tmp_path_factory.mktemp("quick")
    return Cli(write_inventory(nodes, home, pairs.fabric), home)


@pytest.fixture(scope="module")
def pushed(registry: Registry, built: str, model: str) -> Iterator[str]:
    """The digest of the image in the registry of node-1, whose nodes know neither it nor what it was made of."""
    assert model == "tiny-qwen3"
    registry.node.exec("docker", "build", "--quiet", "--tag=theirs", "-", stdin=LAYOUT.format(ours=built).encode())
    yield registry.push("theirs", "eugr/spark-vllm:latest")
    registry.node.exec("docker", "rmi", "theirs")


def imported(cli: Cli, text: str, folder: Path) -> Path:
    """The recipe as the import writes it, with what CPUs need."""
    theirs, ours = folder / "theirs.yaml", folder / "mine.yaml"
    theirs.write_text(text)
    ran = cli("import", theirs, "--use", IMAGE, "-o", ours)
    assert ran.code == 0, ran.err
    recipe = yaml.safe_load(ours.read_text())
    questions = yaml.safe_load((checkpoints.TRAINER.parents[2] / "recipes/tiny-qwen3-cpu.yaml").read_text())
    recipe["serve"]["env"] |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    recipe["image"] |= {"disk_gib": 8, "torch": {"version": "2.13.0", "backend": "cpu"}}
    ours.write_text(yaml.safe_dump({**recipe, **CPUS, "probe": questions["probe"]}))
    return ours


@pytest.mark.parametrize(
    ("text", "on"),
    [(ONE, ("node-1",)), (TWO, ("node-1", "node-2")), (LINE, ("node-1",))],
    ids=["one node", "two nodes", "a docker run line"],
)
def test_it_is_pulled_by_its_digest_gated_and_answers(
    cli: Cli, nodes: RealFleet, pushed: str, text: str, on: tuple[str, ...], tmp_path: Path
) -> None:
    recipe = imported(cli, text, tmp_path)
    port = yaml.safe_load(recipe.read_text())["serve"]["port"]
    where = pairs.on(on)

    locked = cli("recipe", "lock", recipe, "--node", "node-1", "--no-build", "--json")
    assert (locked.code, locked.json["lock"]["parent"]["digest"]) == (0, pushed), locked.err
    built = cli("build", recipe, *where, "--once")
    assert built.code == 0, built.err
    assert "gate passed: arguments: accepted by the parser of the image" in built.err
    planned = cli("plan", recipe, *where)
    assert planned.code == 0, planned.err
    service = Service(cli, nodes, str(recipe), "tiny-qwen3", port, {})
    try:
        deployed = service.deploy(*where)
        assert deployed.code == 0, deployed.err
        question = {"role": "user", "content": "What is the capital of France?"}
        body = {"model": "tiny-qwen3", "messages": [question], "max_tokens": 8, "temperature": 0}
        answer = requests.post(f"{service.url}/v1/chat/completions", json=body, timeout=60).json()
        assert "Paris" in answer["choices"][0]["message"]["content"]
        assert {container.node for container in service.running()} == set(on)
    finally:
        assert cli("stop", "tiny-qwen3", "--forget").code == 0
