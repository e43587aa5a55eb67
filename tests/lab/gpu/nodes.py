"""Two nodes made of containers, each with one GPU of this machine, an engine and sshd of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from sparkops.node.docker.commands import gpu as gpu_options
from tests.fleet.fleet import Fleet, run_for_all
from tests.fleet.node import FleetNode
from tests.fleet.shell import client, docker, pipe, succeeds
from tests.lab.gpu import machine

COUNT = 2
GATEWAY = "node-1"
SETUP = """ln -sf /usr/local/nvidia/bin/nvidia-smi /usr/bin/nvidia-smi
echo /usr/local/nvidia/lib64 >/etc/ld.so.conf.d/nvidia.conf
ldconfig"""


def up(root: Path, debian: str) -> Fleet:
    """Start the nodes, whose programs find the driver. Raises FleetError, AssertionError without a GPU in each."""
    options = tuple(("--shm-size=16g", *gpu_options(machine.devices([number]))) for number in range(COUNT))
    fleet = Fleet.up(COUNT, root=root, options=options, suites=(debian.split(":")[1].removesuffix("-slim"),))
    run_for_all(_find_driver, fleet.nodes)
    return fleet


def _find_driver(node: FleetNode) -> None:
    if machine.DRIVER.is_dir():
        node.exec("sh", "-ec", SETUP)
    # By Docker, as its engines are: `node.exec` is not bound to the devices of the container.
    shown = docker("exec", node.container, "nvidia-smi", "--list-gpus")
    assert shown.count("GPU ") == 1, shown


def give(nodes: Fleet, parent: str) -> None:
    """Copy the image in FROM of a recipe to each node, if this machine has it and the node does not."""
    if docker("image", "ls", "--quiet", parent):
        run_for_all(partial(_give, parent), nodes.nodes)


def _give(parent: str, node: FleetNode) -> None:
    inside = (client(), "exec", "--interactive", node.container, "docker")
    if not succeeds(*inside, "image", "inspect", parent):
        pipe((client(), "save", parent), (*inside, "load"))


def inventory(nodes: Fleet, name: str, **sections: Any) -> Path:
    """Write an inventory of the nodes with their GPUs, further sections and the gateway on the first. Returns it."""
    data = yaml.safe_load(nodes.inventory.read_text())
    data |= {"known_hosts": str(nodes.home / "known_hosts"), "gateway": {"node": GATEWAY}, **sections}
    data["defaults"]["ssh_key"] = str(nodes.ssh_key)
    for number, node in enumerate(data["nodes"]):
        data["nodes"][node] |= machine.devices([number]).model_dump(include={"gpu", "gpu_devices", "gpu_mounts"})
    file = nodes.home / name
    file.write_text(yaml.safe_dump(data))
    return file


def clients(nodes: Fleet) -> Mapping[str, Any]:
    """Return the Docker client of each node by its name."""
    return {node.name: _client(node) for node in nodes.nodes}


def _client(node: FleetNode) -> Any:
    def run(*argv: str, both: bool = False) -> str:
        words = (client(), "exec", node.container, "docker", *argv)
        if not both:
            return node.exec("docker", *argv)
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout

    return run
