"""A node without any network serves a recipe whose images came from another node by `docker save`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkops.operator.build.images import gated
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.fleet.shell import client, pipe
from tests.real.program import Cli
from tests.real.service import QUICK

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

ONLINE, OFFLINE = (f"{name}-{os.getpid()}" for name in ("online", "offline"))
RECIPE = "stand-in"
DEPLOY = ("deploy", RECIPE, "--apply-gateway", *(word for key in QUICK for word in ("--set", f"{key}={QUICK[key]}")))
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
class Site:
    """A node in an inventory of its own, with the gateway on it."""

    cli: Cli
    node: FleetNode

    @property
    def record(self) -> Path:
        """The record of contents that passed their gate, beside the inventory."""
        return self.cli.inventory.with_name(gated.NAME)

    def images(self) -> dict[str, str]:
        """IDs of the images of sparkops by tag."""
        listed = self.node.exec("docker", "images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}")
        lines = (line.split() for line in listed.splitlines())
        return {tag: image for tag, image in lines if tag.startswith("sparkops/")}

    def run(self, *argv: str) -> None:
        ran = self.cli(*argv)
        assert ran.code == 0, ran.err


def site(nodes: RealFleet, node: FleetNode, directory: Path) -> Site:
    node.exec("install", "-d", "-o", "ops", "-g", "ops", "/srv/models")
    return Site(Cli(nodes.write_inventory(directory / "inventory.yaml", [node]), directory / "state"), node)


@pytest.fixture
def online(nodes: RealFleet, tmp_path: Path) -> Iterator[Site]:
    """A node that has served the recipe."""
    try:
        served = site(nodes, nodes.add(ONLINE), tmp_path / "online")
        served.run("build", RECIPE)
        served.run(*DEPLOY)
        served.run("stop", RECIPE)
        yield served
    finally:
        nodes.remove(ONLINE)


@pytest.fixture
def offline(nodes: RealFleet, tmp_path: Path) -> Iterator[Site]:
    """A node that has no image and no way out."""
    try:
        node = nodes.add(OFFLINE)
        node.exec("sh", "-c", "docker images --all --quiet | sort -u | xargs --no-run-if-empty docker rmi --force")
        node.exec("sh", "-c", "ip route del default; : > /etc/resolv.conf")
        node.exec("python3", "-c", NETWORK)
        yield site(nodes, node, tmp_path / "offline")
    finally:
        nodes.remove(OFFLINE)


def test_a_node_without_a_network_serves_images_that_docker_has_saved_elsewhere(online: Site, offline: Site) -> None:
    assert offline.cli("build", RECIPE).code == 1, "without the images, a build needs a network"
    saved = online.images()
    assert {tag.partition(":")[0] for tag in saved} == {"sparkops/stand-in", "sparkops/guard", "sparkops/gateway"}
    give = (client(), "exec", online.node.container, "docker", "save", *saved)
    pipe(give, (client(), "exec", "--interactive", offline.node.container, "docker", "load", "--quiet"))

    unknown = offline.cli("build", RECIPE)
    assert unknown.code == 1, "a tag alone is not trusted"
    assert "is unknown, so it is built: content " in unknown.err
    assert offline.images() == saved

    shutil.copy(online.record, offline.record)
    ran = offline.cli("build", RECIPE, "--json")
    assert ran.code == 0, ran.err
    built, tag = ran.json["nodes"][OFFLINE], ran.json["tag"]
    assert (built["built"], built["image"]) == (False, saved[tag])
    assert built["gates"]
    assert all(gate["ok"] for gate in built["gates"])
    again = offline.cli("build", RECIPE, "--json").json["nodes"][OFFLINE]
    assert (again["built"], again["gates"]) == (False, []), "it is trusted now"

    offline.run(*DEPLOY)
    offline.run("probe", RECIPE)
    assert offline.images() == saved, "guard and gateway are those of the other node"
    offline.node.exec("python3", "-c", NETWORK)
    labels = offline.node.exec("docker", "inspect", "--format", "{{json .Config.Labels}}", tag)
    assert json.loads(labels)["sparkops.recipe"] == RECIPE
