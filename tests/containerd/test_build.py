"""Builds, gates and copies of a built image with containerd's image store, where an image's ID is that of an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from sparkops.config import assets, inventory, recipe_file
from sparkops.config.image import Torch
from sparkops.config.inventory import Fleet
from sparkops.errors import ImageRejected
from sparkops.node.progress import silent
from sparkops.operator.build.images import distribute, gated
from sparkops.operator.build.images.build import build_on_all, of_recipe
from sparkops.operator.cli.images import make_order
from sparkops.operator.fleet.connected import connect
from tests import image_layers
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode, Store
from tests.real.program import Cli
from tests.real.test_build import images
from tests.real.test_copies import TAG

pytestmark = pytest.mark.fleet

STAND_IN = CHECKOUT / "recipes/stand-in.yaml"
LARGE = 20_000_000
OTHER_STORE = "other-store"


@pytest.fixture
def other(nodes: RealFleet, tmp_path: Path) -> Iterator[Path]:
    """The stand-in under another name and with one more package, which no node has yet."""
    name = f"stored-{uuid4().hex[:8]}"
    file = tmp_path / f"{name}.yaml"
    text = STAND_IN.read_text().replace("name: stand-in\n", f"name: {name}\n")
    file.write_text(text.replace("  disk_gib: 1\n", "  disk_gib: 1\n  apt: [less]\n"))
    yield file
    for node in nodes.nodes:
        node.exec("sh", "-c", f"docker images --quiet --filter=label=sparkops.recipe={name} | xargs -r docker rmi")


@pytest.fixture
def other_store(nodes: RealFleet) -> Iterator[FleetNode]:
    """A node with Docker's own store, and afterwards no image of the test on the first node."""
    yield nodes.add(OTHER_STORE, store=Store.DOCKER, suites=("bookworm",))
    nodes.remove(OTHER_STORE)
    image_layers.forget(nodes.node("node-1"), TAG)


def inspect(node: FleetNode, name: str, form: str) -> object:
    return json.loads(node.exec("docker", "image", "inspect", "--format", f"{{{{json {form}}}}}", name))


def test_the_engines_use_containerd_s_store(nodes: RealFleet) -> None:
    for node in nodes.nodes:
        assert "io.containerd.snapshotter.v1" in node.exec("docker", "info", "--format", "{{.DriverStatus}}")


def test_an_image_is_built_once_passes_its_gate_and_is_copied(nodes: RealFleet, sparkops: Cli, other: Path) -> None:
    first = sparkops("build", other, "--once", "--json")
    assert first.code == 0, first.err
    one, two = first.json["nodes"]["node-1"], first.json["nodes"]["node-2"]
    assert (one["built"], [gate["ok"] for gate in one["gates"]]) == (True, [True])
    assert (two["built"], two["from"], two["sent"] > 0) == (False, "node-1", True)
    tag = first.json["tag"]
    assert [inspect(node, tag, ".Id") for node in nodes.nodes] == [one["image"], two["image"]]
    labels = [inspect(node, tag, ".Config.Labels") for node in nodes.nodes]
    assert labels[0] == labels[1]
    assert dict(labels[0])["sparkops.inputs"] == first.json["inputs"]  # type: ignore[call-overload]

    repeated = sparkops("build", other, "--once", "--json").json["nodes"]
    assert [(node["built"], node["sent"]) for node in repeated.values()] == [(False, 0), (False, 0)]
    everywhere = sparkops("build", other, "--json").json["nodes"]
    assert [(node["built"], node["image"]) for node in everywhere.values()] == [
        (False, one["image"]),
        (False, two["image"]),
    ]


@pytest.mark.matrix
def test_an_image_that_fails_its_gate_never_gets_its_tag(nodes: RealFleet, fleet: Fleet) -> None:
    real = recipe_file.load(STAND_IN)
    torch = Torch(version="2.13.0", backend="cu130")
    claims = real.model_copy(update={"name": "planted", "image": real.image.model_copy(update={"torch": torch})})
    context = replace(make_order(real, fleet).context, digest="f" * 64)  # the real one may be trusted
    order = of_recipe(claims, context, assets.load_gate())
    before = images(nodes.node("node-1"))

    with connect(fleet, ["node-1"]) as connected, pytest.raises(ImageRejected) as refused:
        build_on_all(connected, order, silent)

    assert "node-1: the image differs from the recipe:" in str(refused.value)
    assert images(nodes.node("node-1")) == before


@pytest.mark.matrix
def test_an_image_goes_to_the_other_store_and_back(nodes: RealFleet, other_store: FleetNode, tmp_path: Path) -> None:
    one = nodes.node("node-1")
    file = nodes.write_inventory(tmp_path / "inventory.yaml", [one, other_store])

    def copy(source: FleetNode, target: FleetNode) -> int:
        (tmp_path / gated.NAME).unlink(missing_ok=True)  # each image is another build
        with connect(inventory.load(file), [source.name, target.name]) as connected:
            copied = distribute.copy(connected, TAG, source.name, silent)[target.name]
        assert inspect(target, TAG, ".RootFS.Layers") == inspect(source, TAG, ".RootFS.Layers")
        assert inspect(target, TAG, ".Id") == copied.image != inspect(source, TAG, ".Id")
        return copied.sent

    image_layers.build(one, TAG, LARGE)
    assert copy(one, other_store) >= LARGE
    image_layers.change(one, TAG, 50_000)
    assert copy(one, other_store) < LARGE / 10
    image_layers.build(other_store, TAG, LARGE)
    assert copy(other_store, one) >= LARGE
    assert copy(other_store, one) == 0
