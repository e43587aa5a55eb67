"""A node without any network serves a recipe whose images came from a directory of this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import Cli
from tests.real.service import QUICK, wait_for

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

NAME, RECIPE = f"offline-{os.getpid()}", "stand-in"
NETWORK = """
import socket
for address in ("1.1.1.1", 443), ("deb.debian.org", 80):
    try:
        socket.create_connection(address, 5).close()
    except OSError:
        continue
    raise SystemExit(f"{address} was reached")
"""


@dataclass(frozen=True)
class Offline:
    """A node that has no image and no way out, in an inventory of its own with the gateway on it."""

    cli: Cli
    node: FleetNode

    def json(self, *argv: str | Path) -> Any:
        ran = self.cli(*argv, "--json")
        assert ran.code == 0, ran.err
        return ran.json

    def images(self) -> set[str]:
        return {*self.node.exec("docker", "images", "--all", "--format", "{{.Repository}}:{{.Tag}}").split()}


@pytest.fixture
def offline(nodes: RealFleet, tmp_path: Path) -> Iterator[Offline]:
    try:
        node = nodes.add(NAME)
        node.exec("install", "-d", "-o", "ops", "-g", "ops", "/srv/models")
        node.exec("sh", "-c", "docker images --all --quiet | sort -u | xargs --no-run-if-empty docker rmi --force")
        node.exec("sh", "-c", "ip route del default; : > /etc/resolv.conf")
        node.exec("python3", "-c", NETWORK)
        yield Offline(Cli(nodes.write_inventory(tmp_path / "inventory.yaml", [node]), tmp_path / "state"), node)
    finally:
        nodes.remove(NAME)


def stored(file: Path) -> bool:
    """Whether it is a complete blob."""
    return len(file.name) == 64


def test_a_node_without_a_network_serves_what_was_exported(sparkops: Cli, offline: Offline, tmp_path: Path) -> None:
    directory = tmp_path / "images"
    refused = offline.cli("build", RECIPE)
    assert refused.code == 1, "without the images, a build needs a network"

    with sparkops.start("images", "export", RECIPE, directory, "--node", "node-1") as export:
        wait_for(lambda: export.poll() is not None or any(map(stored, directory.rglob("*"))), 900)
        export.kill()
    exported = sparkops("images", "export", RECIPE, directory, "--node", "node-1", "--json")
    assert exported.code == 0, exported.err
    assert [image["tag"].partition(":")[0] for image in exported.json["images"]] == [
        *("sparkops/stand-in", "sparkops/guard", "sparkops/gateway", "sparkops/hub"),
    ]
    again = sparkops("images", "export", RECIPE, directory, "--node", "node-1", "--json").json
    assert [image["received"] for image in again["images"]] == [0] * 4
    assert not list(directory.rglob("*.part"))

    before = offline.images()
    planned = offline.cli("images", "load", RECIPE, directory, "--dry-run")
    assert (planned.code, planned.out.count(f"{NAME}: sparkops/")) == (0, 4), planned.err
    layer = max(exported.json["images"][0]["layers"], key=lambda layer: int(layer["bytes"]))
    file = directory / "blobs/sha256" / layer["digest"].partition(":")[2]
    whole = file.read_bytes()
    file.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    damaged = offline.cli("images", "load", RECIPE, directory)
    assert (damaged.code, f"{file}: its SHA-256 is" in damaged.err) == (1, True), damaged.err
    assert offline.images() == before, "Docker has loaded nothing"
    file.write_bytes(whole)

    loaded = offline.json("images", "load", RECIPE, directory)["nodes"][NAME]
    assert [image["tag"] for image in loaded] == [image["tag"] for image in exported.json["images"]]
    assert [gate["ok"] for image in loaded for gate in image["gates"]].count(False) == 0
    sizes = [image["bytes"] for image in exported.json["images"]]
    assert 0 < sum(image["sent"] for image in loaded) < sum(sizes), "layers of two images are sent once"
    assert [image["sent"] for image in offline.json("images", "load", RECIPE, directory)["nodes"][NAME]] == [0] * 4

    assert offline.json("build", RECIPE)["nodes"][NAME]["built"] is False
    settings = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    deployed = offline.json("deploy", RECIPE, "--apply-gateway", *settings)
    assert deployed["result"] == "done"
    assert offline.cli("probe", RECIPE).code == 0
    offline.node.exec("python3", "-c", NETWORK)
    labels = offline.node.exec("docker", "inspect", "--format", "{{json .Config.Labels}}", loaded[0]["tag"])
    assert json.loads(labels)["sparkops.recipe"] == RECIPE
