"""What init writes of nodes that were read, and of those that were not."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.config import inventory
from sparkops.errors import UsageError
from sparkops.node.host import HostFacts
from sparkops.operator.fleet.network.facts import parse_fabric
from sparkops.operator.status.doctor import discovery
from sparkops.operator.status.doctor.discovery import Discovered, Models
from sparkops.operator.status.doctor.facts import MachineFacts
from tests import sparks

HOST = HostFacts("aarch64", 0.0, 121.7, 110.0)
MACHINE = MachineFacts(False, {}, (), toolkit=True, gpu="NVIDIA GB10", gpu_error="")
FABRIC = parse_fabric("== words\nmemlock 64\ndriver 580\nkernel 6\n== sysfs\n== addresses\n[]\n")
SPARK = Discovered(HOST, MACHINE, FABRIC, Models(3, True, "/data/models"))
ROUTES = {
    "spark-1": {"address": "192.168.1.11", "user": "nvidia"},
    "spark-2": {"address": "192.168.1.12", "user": "nvidia"},
    "spark-3": {"address": "fd00::3", "user": "ops", "port": "2222"},
}


def test_the_inventory_has_what_was_read_and_names_what_was_not(tmp_path: Path) -> None:
    plain = replace(SPARK, machine=replace(MACHINE, gpu=""), models=None)
    text = discovery.inventory(ROUTES, {"spark-1": SPARK, "spark-3": plain}, {"spark-2": "no\nanswer"})
    file = tmp_path / "inventory.yaml"
    file.write_text(text)
    fleet = inventory.load(file)

    assert "# NVIDIA GB10, 121.7 GiB of memory, 3 models in /data/models\n" in text
    assert "  # spark-2: {address: 192.168.1.12}  # no answer\n" in text
    assert {name: (node.address, node.user, node.gpu, node.model_dir) for name, node in fleet.nodes.items()} == {
        "spark-1": ("192.168.1.11", "nvidia", "runtime", "/data/models"),
        "spark-3": ("fd00::3", "ops", "none", "/srv/models"),
    }
    assert fleet.nodes["spark-3"].port == 2222
    assert fleet.gateway
    assert fleet.gateway.node == "spark-1"


def test_names_and_gateway_are_those_of_a_fleet_that_runs() -> None:
    drafted = ("spark-1", "spark-2", "spark-3")
    first, second = (replace(SPARK, fleet_name=name, leaders=frozenset({"spark-1"})) for name in ("node-7", "spark-1"))
    known = {"spark-1": first, "spark-2": second, "spark-3": SPARK}

    names = discovery.names(drafted, known)

    assert names == {"spark-1": "node-7", "spark-2": "spark-1", "spark-3": "spark-3"}
    assert discovery.names(drafted, {"spark-3": second})["spark-1"] == "spark-2"
    renamed = {names[name]: node for name, node in known.items()}
    routes = {names[name]: route for name, route in ROUTES.items()}
    assert "\ngateway: {node: spark-1, port: 8000}" in discovery.inventory(routes, renamed, {})
    alone = discovery.inventory(routes, {"node-7": first}, {"spark-1": "no answer"})
    assert "\n# gateway: {node: spark-1, port: 8000}  # spark-1 leads this fleet" in alone


def test_two_nodes_of_one_name_are_of_two_fleets_or_the_same() -> None:
    twice = replace(SPARK, fleet_name="node-1")

    with pytest.raises(UsageError, match="spark-1 and spark-2: the guards of both call their node node-1"):
        discovery.names(("spark-1", "spark-2"), {"spark-1": twice, "spark-2": twice})


def test_the_gateway_is_on_the_first_node_that_was_read() -> None:
    text = discovery.inventory(ROUTES, {"spark-2": SPARK}, {"spark-1": "no answer", "spark-3": "no answer"})

    assert "gateway: {node: spark-2, port: 8000}" in text


@pytest.mark.parametrize(
    ("change", "gpu"),
    [
        ({}, "runtime"),
        ({"toolkit": False}, "runtime"),
        ({"toolkit": False, "cdi": ("/etc/cdi/nvidia.yaml",)}, "cdi"),
        ({"gpu": "", "gpu_error": "no devices were found"}, "runtime"),
        ({"gpu": ""}, "none"),
    ],
)
def test_how_the_gpu_reaches_a_container(change: dict[str, object], gpu: str) -> None:
    assert replace(SPARK, machine=replace(MACHINE, **change)).gpu == gpu  # type: ignore[arg-type]


def test_ports_of_the_fabric_that_carry_data_are_named(tmp_path: Path) -> None:
    fabric = sparks.read(sparks.write(tmp_path, sparks.spark(1)))

    named = str(replace(SPARK, fabric=fabric))
    assert "rocep1s0f1 192.168.100.10, roceP2p1s0f1 192.168.101.10, 3 models" in named
    assert "rocep1s0f0" not in named  # down


def test_a_directory_that_its_user_cannot_write_to_is_named() -> None:
    assert str(replace(SPARK, models=Models(0, False, "/srv/models"))).endswith("not writable for its user")


def test_the_directory_with_the_most_models_is_taken(tmp_path: Path) -> None:
    for name in ("srv/models/one", "data/models/two", "data/models/three", "mnt/disk/models/empty"):
        (tmp_path / name).mkdir(parents=True)
        if "empty" not in name:
            (tmp_path / name / "config.json").write_text("{}")
    ran = subprocess.run(discovery.query(str(tmp_path)).argv, capture_output=True, text=True, check=True)

    assert discovery.parse(ran.stdout) == Models(2, True, "/data/models")
    assert discovery.parse("Welcome\n") is None
