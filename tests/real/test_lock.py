"""A lock made on one node, and a build from it on another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import Cli

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]


@pytest.fixture
def recipe(nodes: RealFleet, variant: Callable[..., Path]) -> Iterator[Path]:
    """The tiny recipe, alone in its directory; what is built of it leaves the nodes again."""
    file = variant({})
    before = {
        node.name: tags(node.exec("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")) for node in nodes.nodes
    }
    yield file
    for node in nodes.nodes:
        for tag in tags(node.exec("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")) - before[node.name]:
            node.exec("docker", "rmi", tag)


def tags(listed: str) -> set[str]:
    return {line for line in listed.split() if line.startswith("sparkops/")}


def test_a_build_from_a_lock_on_another_node_is_of_the_same(nodes: RealFleet, sparkops: Cli, recipe: Path) -> None:
    locked = sparkops("recipe", "lock", recipe, "--node", "node-1", "--json", timeout=900)
    assert locked.code == 0, locked.err
    assert locked.json["lock"]["contents"] == {"torch": "2.13.0+cpu", "cuda": None, "archs": []}
    assert "sparkops recipe lock" in recipe.with_suffix(".lock").read_text()

    tag = sparkops("build", recipe, "--dry-run").err.split()[0]
    nodes.node("node-2").exec("sh", "-c", f"docker rmi {tag} || true")  # of a run that was interrupted
    other = sparkops("build", recipe, "--node", "node-2", "--json", timeout=900)
    assert other.code == 0, other.err
    gates = {gate["name"]: gate["found"] for gate in other.json["nodes"]["node-2"]["gates"]}
    assert gates["locked base"] == "its layers"
    assert gates["locked packages"] == f"{len(locked.json['lock']['packages'])} as locked"
    assert gates["locked torch"] == "2.13.0+cpu, CUDA none, for no GPU"

    form = "{{json .Config.Labels}}"
    labels = [json.loads(node.exec("docker", "inspect", "--format", form, other.json["tag"])) for node in nodes.nodes]
    assert labels[0]["sparkops.inputs"] == labels[1]["sparkops.inputs"] == other.json["inputs"]
    assert labels[0]["sparkops.packages"] == labels[1]["sparkops.packages"]

    repeated = sparkops("recipe", "lock", recipe, "--node", "node-1")
    assert (repeated.code, "is up to date" in repeated.err) == (0, True)


def test_a_wheel_with_another_hash_is_not_installed(sparkops: Cli, recipe: Path) -> None:
    locked = sparkops("recipe", "lock", recipe, "--node", "node-1", "--no-build", timeout=600)
    assert locked.code == 0, locked.err
    lock = recipe.with_suffix(".lock")
    wrong = re.sub(r"(certifi==\S+:\n)((?:  - sha256:\w+\n)+)", rf"\1  - sha256:{'0' * 64}\n", lock.read_text())
    assert wrong != lock.read_text()
    lock.write_text(wrong)

    refused = sparkops("build", recipe, "--node", "node-1", timeout=900)
    assert refused.code == 1
    assert "Hash mismatch for `certifi==" in refused.err
