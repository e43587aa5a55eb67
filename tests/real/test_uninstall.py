"""Uninstall on real nodes: one that has served is afterwards as it was before sparkops came."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import Cli
from tests.real.service import QUICK

pytestmark = pytest.mark.fleet

FRONT, ENGINE = f"uninstall-front-{os.getpid()}", f"uninstall-engine-{os.getpid()}"
SERVICE = "stand-in"
FILES = """
cd /; find run srv home etc root tmp dev/shm var/lib/docker/volumes -xdev \
    -not -path 'run/docker*' -not -path 'run/containerd*' -not -path run/runc -not -path 'root/.docker/*' \
    -printf '%p %y %U:%G %m\\n' | sort
"""
"""Paths, kinds, owners and modes; the state of Docker, containerd and runc changes with every container."""


TABLES = """
import socket, struct

NETFILTER, GET_TABLES, DUMP, DONE = 12, 0x0A01, 0x301, 3
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETFILTER) as link:
    link.send(struct.pack("=IHHIIBBH", 20, GET_TABLES, DUMP, 1, 0, 0, 0, 0))
    while True:
        data = link.recv(65536)
        while data:
            size, kind = struct.unpack_from("=IH", data)
            if kind == DONE:
                raise SystemExit
            name_size, attribute = struct.unpack_from("=HH", data, 20)  # after the headers: the name comes first
            assert attribute == 1, data
            print(data[16], data[24 : 20 + name_size].rstrip(b"\\0").decode())
            data = data[(size + 3) & ~3 :]
"""
"""Prints family and name of every table of nftables. Nodes have no nft."""


def state(node: FleetNode) -> Mapping[str, frozenset[str]]:
    """What sparkops might leave on a node: containers, images, volumes, networks, files, firewall."""
    read = {
        "containers": ("docker", "ps", "--all", "--format", "{{.Names}} {{.Image}}"),
        "images": ("docker", "images", "--all", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}"),
        "volumes": ("docker", "volume", "ls", "--format", "{{.Name}}"),
        "networks": ("docker", "network", "ls", "--format", "{{.Name}}"),
        "files": ("sh", "-c", FILES),
        "nftables": ("python3", "-c", TABLES),
    }
    return {what: frozenset(node.exec(*argv).splitlines()) for what, argv in read.items()}


def changes(before: Mapping[str, frozenset[str]], node: FleetNode) -> Mapping[str, set[str]]:
    """What differs from the state before; nothing where all is as it was."""
    return {what: set(differing) for what, now in state(node).items() if (differing := now ^ before[what])}


@dataclass(frozen=True)
class Leaving:
    """Two nodes of our own, the gateway on one, an engine on the other; `before`: their states without sparkops."""

    cli: Cli
    nodes: Mapping[str, FleetNode]
    before: Mapping[str, Mapping[str, frozenset[str]]]

    def json(self, *argv: str) -> Any:
        ran = self.cli(*argv, "--json")
        assert ran.code == 0, ran.err
        return ran.json


@pytest.fixture
def leaving(nodes: RealFleet, tmp_path: Any) -> Iterator[Leaving]:
    machines: dict[str, FleetNode] = {}
    try:
        for name in (FRONT, ENGINE):
            machines[name] = nodes.add(name)
            machines[name].exec("install", "-d", "-o", "ops", "-g", "ops", "/srv/models")
        file = nodes.write_inventory(tmp_path / "inventory.yaml", list(machines.values()))
        yield Leaving(Cli(file, tmp_path), machines, {name: state(node) for name, node in machines.items()})
    finally:
        for name in machines:
            nodes.remove(name)


def weights(node: FleetNode, path: str, marker: str = "") -> None:
    """A model directory of the SSH user, with the marker of sparkops if one is passed."""
    place = f"/srv/models/{path}"
    lines = (f"mkdir -p {place}", f"echo '{{}}' > {place}/config.json", f"echo x > {place}/model.safetensors")
    marked = (f"echo '{marker}' > {place}/.sparkops.json",) if marker else ()
    node.exec("sh", "-c", " && ".join((*lines, *marked, "chown -R ops:ops /srv/models")))


@pytest.mark.matrix
def test_a_node_that_served_is_as_it_was_and_its_fleet_goes_on_without_it(leaving: Leaving) -> None:
    settings = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
    engine, front = leaving.nodes[ENGINE], leaving.nodes[FRONT]
    assert leaving.json("build", SERVICE)["nodes"]
    deployed = leaving.json("deploy", SERVICE, "--node", ENGINE, "--apply-gateway", *settings)
    assert deployed["result"] == "done"
    weights(engine, "org/ours", json.dumps({"model": "org/ours", "files": {}}))
    weights(engine, "theirs")

    for node in (ENGINE, FRONT):
        refused = leaving.cli("node", "uninstall", node, "--yes")
        assert (refused.code, "sparkops stop stand-in" in refused.err) == (5, True), refused.err
    assert leaving.cli("probe", SERVICE).code == 0
    assert leaving.cli("stop", SERVICE).code == 0

    planned = leaving.cli("node", "uninstall", ENGINE, "--weights", "--dry-run")
    assert f"the guard of {FRONT} dismisses {ENGINE}" in planned.out, planned.err
    assert "docker rm --force --volumes sparkops-guard" in planned.out
    assert "sparkops-guard" in engine.exec("docker", "ps")
    assert {what for what, now in state(engine).items() if "sparkops" in " ".join(now)} == {
        *("containers", "images", "volumes", "files", "nftables"),
    }
    done = leaving.json("node", "uninstall", ENGINE, "--weights", "--build-cache", "--yes")
    assert [item for item in done["remove"] if not item["removed"]] == []
    commands = "\n".join(item["command"] for item in done["remove"])
    for part in ("docker rm ", " nft ", "/host/sparkops", "docker rmi ", "docker volume rm ", "builder prune"):
        assert part in commands, commands
    assert "rm -rf -- /srv/models/org/ours" in commands
    assert "/srv/models/theirs" in engine.exec("sh", "-c", "ls -d /srv/models/*")
    engine.exec("rm", "-r", "/srv/models/theirs")
    assert changes(leaving.before[ENGINE], engine) == {}
    assert leaving.json("node", "uninstall", ENGINE, "--yes")["remove"] == []

    # the fleet leads on without it
    data = yaml.safe_load(leaving.cli.inventory.read_text())
    del data["nodes"][ENGINE]
    leaving.cli.inventory.write_text(yaml.safe_dump(data))
    again = leaving.json("deploy", SERVICE, "--apply-gateway", *settings)
    assert again["result"] == "done"
    assert "sparkops" not in engine.exec("docker", "ps", "--all")

    assert leaving.cli("stop", SERVICE).code == 0
    assert leaving.cli("node", "uninstall", FRONT, "--build-cache", "--yes").code == 0
    assert changes(leaving.before[FRONT], front) == {}
