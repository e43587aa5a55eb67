"""What a node says about its network. tests/sparks.py says where its words come from."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from sparkops.operator.fleet.network import facts as fabric
from sparkops.operator.fleet.network.facts import Device, Gid, Interface
from tests import sparks
from tests.sparks import FIRMWARE, Function, Spark

pytestmark = pytest.mark.local  # real shells read real files

ACTIVE: Mapping[str, Any] = {"state": "ACTIVE", "phys_state": "LinkUp", "rate": "200 Gb/sec (2X NDR)"}
DOWN: Mapping[str, Any] = {"state": "DOWN", "phys_state": "Disabled", "rate": "40 Gb/sec (4X QDR)"}


def device(name: str, interface: str, pci: str, state: Mapping[str, Any], *gids: Gid) -> Device:
    return Device(
        name=name, port=1, link_layer="Ethernet", pci=pci, firmware=FIRMWARE, interface=interface, gids=gids, **state
    )


def gid(address: str, interface: str, row: int = 3) -> Gid:
    return Gid(row, IPv4Address(address), interface)


def test_a_spark_with_one_cable_is_read_whole(tmp_path: Path) -> None:
    facts = sparks.read(sparks.write(tmp_path, sparks.spark(1)))

    assert facts.devices == (
        device("rocep1s0f0", "enp1s0f0np0", "0000:01:00.0", DOWN),
        device("rocep1s0f1", "enp1s0f1np1", "0000:01:00.1", ACTIVE, gid("192.168.100.10", "enp1s0f1np1")),
        device("roceP2p1s0f0", "enP2p1s0f0np0", "0002:01:00.0", DOWN),
        device("roceP2p1s0f1", "enP2p1s0f1np1", "0002:01:00.1", ACTIVE, gid("192.168.101.10", "enP2p1s0f1np1")),
    )
    assert facts.interfaces == {
        "lo": Interface("lo", True, 65536, None, (IPv4Interface("127.0.0.1/8"),)),
        "docker0": Interface("docker0", True, 1500, None, (IPv4Interface("172.17.0.1/16"),)),
        "enp1s0f0np0": Interface("enp1s0f0np0", False, 1500),
        "enP2p1s0f0np0": Interface("enP2p1s0f0np0", False, 1500),
        "enp1s0f1np1": Interface("enp1s0f1np1", True, 9000, 200000, (IPv4Interface("192.168.100.10/24"),)),
        "enP2p1s0f1np1": Interface("enP2p1s0f1np1", True, 9000, 200000, (IPv4Interface("192.168.101.10/24"),)),
        "enP7s7": Interface("enP7s7", True, 1500, 10000, (IPv4Interface("10.0.0.1/24"),)),
    }
    assert facts.rdma_files == {"rdma_cm", "uverbs0", "uverbs1", "uverbs2", "uverbs3"}
    assert facts.driver == sparks.DRIVER
    assert facts.tools == {"ping", "ib_write_bw"}


def test_twins_are_the_functions_of_one_port(tmp_path: Path) -> None:
    facts = sparks.read(sparks.write(tmp_path, sparks.spark(1)))

    slots = {device.name: device.slot for device in facts.devices}
    assert slots["rocep1s0f0"] == slots["roceP2p1s0f0"] != slots["rocep1s0f1"] == slots["roceP2p1s0f1"]


@pytest.mark.parametrize("row", [3, 5])
def test_the_row_is_the_one_of_roce_v2_with_an_ipv4_address(tmp_path: Path, row: int) -> None:
    functions = sparks.port_0("192.168.100.1/24", None, row=row)

    first, second = sparks.read(sparks.write(tmp_path, Spark(functions))).devices

    assert first.gids == (gid("192.168.100.1", "enp1s0f0np0", row),)
    assert second.gids == ()  # link-local rows of both versions


def test_each_address_of_an_interface_has_a_row_of_its_own(tmp_path: Path) -> None:
    root = sparks.write(tmp_path, Spark(sparks.port_0("192.168.100.1/24", None)))
    port = root / "sys/class/infiniband/rocep1s0f0/ports/1"
    for row, kind in ((4, "IB/RoCE v1"), (5, "RoCE v2")):
        (port / f"gids/{row}").write_text(f"{sparks.mapped('10.1.0.1/24')}\n")
        (port / f"gid_attrs/types/{row}").rmdir()
        (port / f"gid_attrs/types/{row}").write_text(f"{kind}\n")
        (port / f"gid_attrs/ndevs/{row}").write_text("enp1s0f0np0.7\n")  # a VLAN

    facts = sparks.read(root)

    assert facts.devices[0].gids == (gid("192.168.100.1", "enp1s0f0np0"), gid("10.1.0.1", "enp1s0f0np0.7", 5))


def test_names_of_another_driver_are_read_as_they_are(tmp_path: Path) -> None:
    function = Function("mlx5_0", "ens1f0np0", "0000:17:00.0", "10.5.0.1/16", row=5)

    [read] = sparks.read(sparks.write(tmp_path, Spark((function,)))).devices

    assert read == device("mlx5_0", "ens1f0np0", "0000:17:00.0", ACTIVE, gid("10.5.0.1", "ens1f0np0", 5))


def test_a_node_without_rdma_has_no_devices(tmp_path: Path) -> None:
    facts = sparks.read(sparks.write(tmp_path, Spark(driver="", tools=())))

    assert (facts.devices, facts.rdma_files, facts.driver) == ((), frozenset(), "")
    assert facts.interfaces["enP7s7"].addresses == (IPv4Interface("10.0.0.1/24"),)


SAID = "== words\nkernel 6\nmemlock 8192\ndriver \n== sysfs\n== addresses\n[]\n"


@pytest.mark.parametrize(("limit_text", "limit"), [("8192", 8192), ("unlimited", None)])
def test_the_limit_of_locked_memory(limit_text: str, limit: int | None) -> None:
    assert fabric.parse_fabric(SAID.replace("8192", limit_text)).memlock_kib == limit


def test_an_entry_of_ip_without_a_name_is_skipped() -> None:
    """iproute2 prints {} for an interface that its filter leaves out."""
    dummy = '{"ifname": "dummy0", "flags": ["UP", "LOWER_UP"], "mtu": 1500, "addr_info": []}'

    assert fabric.parse_fabric(SAID.replace("[]", f"[{{}}, {dummy}]")).interfaces == {
        "dummy0": Interface("dummy0", True, 1500, None)
    }


def test_what_a_login_shell_prints_is_passed_over() -> None:
    assert fabric.parse_fabric("Welcome to Ubuntu\n\n" + SAID) == fabric.parse_fabric(SAID)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no section 'words' in ''"),
        (SAID.replace("== sysfs\n", ""), "no section 'sysfs' in .*"),
        (SAID.replace("memlock 8192\n", ""), "no 'memlock' in .*"),
        (SAID.replace("== sysfs\n", "== sysfs\ninfiniband/d/ports/1/state:4: ACTIVE\n"), "no 'phys_state' in .*"),
        (SAID.replace("[]", "{"), "Expecting property name .*"),
    ],
)
def test_anything_else_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}"):
        fabric.parse_fabric(text)
