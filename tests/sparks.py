"""Nodes as directory trees, which the real query reads with a real shell: /sys, /dev and the programs that it asks.

Nothing here was captured: no Spark was at hand. The trees are constructed from what others published, so that names,
places and words are those of a Spark:
- devices, interfaces, which are up: `ibdev2netdev` and `ip addr` in NVIDIA/dgx-spark-playbooks, connect-two-sparks;
- PCI addresses, twins in domain 0000 and 0002: NVIDIA/daqiri#108;
- firmware, link layer, a port that is down (Disabled, rate 40): `ibstat` in geerlingguy/sbc-reviews#92;
- the files of a GID table, and each GID in it twice, for v1 and v2: NVIDIA's MLNX_OFED documentation, "RDMA over
  Converged Ethernet"; link-local rows first, then RoCE v2 at row 3: christopherowen/dgx-spark-networking, or at row 5:
  MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47;
- states as `4: ACTIVE` of files such as ports/1/state: the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from sparkops.config.fabric import FabricRules as Rules
from sparkops.node.local import LocalNode
from sparkops.operator.fleet.network import facts as fabric
from sparkops.operator.fleet.network import topology as planning
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.topology import Fabric
from tests.examples import node

UNUSED = "0000:0000:0000:0000:0000:0000:0000:0000"
LINK_LOCAL = "fe80:0000:0000:0000:4ebb:47ff:fe2a:6531"
GLOBAL_IPV6 = "fd93:16d3:59b6:010d:0690:81ff:fe39:e3e8"
FIRMWARE = "28.45.4028"
DRIVER = "580.95.05"


@dataclass(frozen=True)
class Function:
    """One of the four functions of a ConnectX-7. `address` as 192.168.100.10/24; `row` is its RoCE v2 row."""

    device: str
    interface: str
    pci: str
    address: str | None = None
    row: int = 3
    up: bool = True
    mtu: int = 9000
    layer: str = "Ethernet"


@dataclass(frozen=True)
class Spark:
    """What stands in the tree. `wires` are interfaces without RDMA: name to address, MTU and speed in Mbit/s."""

    functions: tuple[Function, ...] = ()
    wires: Mapping[str, tuple[str, int, int]] = field(default_factory=lambda: {"enP7s7": ("10.0.0.1/24", 1500, 10000)})
    driver: str = DRIVER
    tools: tuple[str, ...] = ("ping", "ib_write_bw")


def port_0(address: str | None, twin: str | None, **changes: Any) -> tuple[Function, Function]:
    """The two functions of the first QSFP port."""
    return (
        Function("rocep1s0f0", "enp1s0f0np0", "0000:01:00.0", address, **changes),
        Function("roceP2p1s0f0", "enP2p1s0f0np0", "0002:01:00.0", twin, **changes),
    )


def port_1(address: str | None, twin: str | None, **changes: Any) -> tuple[Function, Function]:
    """The two functions of the second QSFP port."""
    return (
        Function("rocep1s0f1", "enp1s0f1np1", "0000:01:00.1", address, **changes),
        Function("roceP2p1s0f1", "enP2p1s0f1np1", "0002:01:00.1", twin, **changes),
    )


_FACTS: dict[str, NodeFabric] = {}
DOWN_0 = port_0(None, None, up=False, mtu=1500)
DOWN_1 = port_1(None, None, up=False, mtu=1500)


def spark(number: int, **changes: Any) -> Spark:
    """A Spark with a cable in its second port, as NVIDIA's playbook connects two."""
    address = 9 + number
    functions = (*DOWN_0, *port_1(f"192.168.100.{address}/24", f"192.168.101.{address}/24"))
    wires = {"enP7s7": (f"10.0.0.{number}/24", 1500, 10000)}
    return Spark(**{"functions": functions, "wires": wires, **changes})


def ring(size: int, *, halves: bool = True) -> list[Spark]:
    """Sparks cabled in a ring, port 0 of each to port 1 of the next one, as docs/NETWORKING.md of
    eugr/spark-vllm-docker addresses them: two subnets a cable; without `halves` one."""

    def ends(cable: int, number: int) -> tuple[str, str | None]:
        first, second = (f"10.20.{2 * cable + half}.{10 + number}/24" for half in (0, 1))
        return first, second if halves else None

    return [
        Spark(
            (*port_0(*ends(number - 1, number)), *port_1(*ends((number - 2) % size, number))),
            {"enP7s7": (f"10.0.0.{number}/24", 1500, 10000)},
        )
        for number in range(1, size + 1)
    ]


def read(root: Path) -> NodeFabric:
    """What the real query says of a tree. The limit of locked memory is not in it, so it is not this machine's."""
    parsed = fabric.parse_fabric(LocalNode("here").run(fabric.fabric_query(str(root))).stdout)
    return replace(parsed, memlock_kib=8192)


def facts(root: Path, hardware: Spark) -> NodeFabric:
    """What the real query says of a Spark. Equal ones are made, at `root`, and asked once: a tree has 300 files."""
    key = repr(hardware)
    if key not in _FACTS:
        _FACTS[key] = read(write(root, hardware))
    return _FACTS[key]


def join(root: Path, *nodes: Spark, named: Mapping[str, Mapping[str, Any]] | None = None, **rules: Any) -> Fabric:
    """The network of nodes a, b, c and so on; `named` is what the inventory says of a node. Raises SparkopsError."""
    return _joined(
        {name: facts(root / name, hardware) for name, hardware in zip(ascii_lowercase, nodes, strict=False)},
        named,
        rules,
    )


def join_trees(root: Path, *names: str, named: Mapping[str, Mapping[str, Any]] | None = None, **rules: Any) -> Fabric:
    """The same for trees that are there."""
    return _joined({name: read(root / name) for name in names}, named, rules)


def _joined(
    fabrics: Mapping[str, NodeFabric], named: Mapping[str, Mapping[str, Any]] | None, rules: Mapping[str, Any]
) -> Fabric:
    configs = {name: node(**(named or {}).get(name, {})) for name in fabrics}
    return planning.join(fabrics, configs, Rules(**rules))


def write(root: Path, hardware: Spark) -> Path:
    """Make the tree."""
    write_devices(root, hardware)
    for name, (_, _, speed) in hardware.wires.items():
        _put(root / "sys/class/net" / name / "speed", str(speed))
    _put(root / "ip.json", json.dumps(list(_interfaces(hardware))))
    _program(root, "ip", f"cat '{root}/ip.json'")
    for tool in hardware.tools:
        _program(root, tool, "true")
    return root


def write_devices(root: Path, hardware: Spark) -> None:
    """Only what belongs to RDMA and to the GPU. The rest may be a real node's."""
    for function in hardware.functions:
        _function(root, function)
    if hardware.driver:
        _put(root / "sys/module/nvidia/version", hardware.driver)
    if hardware.functions:
        for name in ("rdma_cm", *(f"uverbs{number}" for number in range(len(hardware.functions)))):
            _put(root / "dev/infiniband" / name, "")


def _function(root: Path, function: Function) -> None:
    device = root / "sys/devices" / f"pci{function.pci[:4]}:00" / function.pci
    (device / "net" / function.interface).mkdir(parents=True)
    infiniband = root / "sys/class/infiniband" / function.device
    infiniband.mkdir(parents=True)
    (infiniband / "device").symlink_to(Path("../../..", device.relative_to(root / "sys")))
    _put(infiniband / "fw_ver", FIRMWARE)
    _put(root / "sys/class/net" / function.interface / "speed", "200000" if function.up else "-1")
    port = infiniband / "ports/1"
    _put(port / "state", "4: ACTIVE" if function.up else "1: DOWN")
    _put(port / "phys_state", "5: LinkUp" if function.up else "3: Disabled")
    _put(port / "rate", "200 Gb/sec (2X NDR)" if function.up else "40 Gb/sec (4X QDR)")
    _put(port / "link_layer", function.layer)
    _gids(port, function)


def _gids(port: Path, function: Function) -> None:
    """A table of 16 rows; a real one has 256."""
    gids = [LINK_LOCAL] * 2
    if function.address:
        gids += [GLOBAL_IPV6] * (function.row - 3)
        gids += [mapped(function.address)] * 2
    for row in range(16):
        used = row < len(gids)
        _put(port / "gids" / str(row), gids[row] if used else UNUSED)
        if used:
            _put(port / "gid_attrs/types" / str(row), "RoCE v2" if row % 2 else "IB/RoCE v1")
            _put(port / "gid_attrs/ndevs" / str(row), function.interface)
        else:
            (port / "gid_attrs/types" / str(row)).mkdir(parents=True)  # cannot be read, as the kernel's cannot


def mapped(address: str) -> str:
    """An IPv4 address as a GID table writes it."""
    raw = IPv4Interface(address).ip.packed.hex()
    return f"0000:0000:0000:0000:0000:ffff:{raw[:4]}:{raw[4:]}"


def _interfaces(hardware: Spark) -> Iterable[dict[str, Any]]:
    """As `ip -j addr` prints them."""
    yield _interface("lo", "127.0.0.1/8", 65536, up=True)
    yield _interface("docker0", "172.17.0.1/16", 1500, up=True)
    for function in hardware.functions:
        yield _interface(function.interface, function.address, function.mtu, up=function.up)
    for name, (address, mtu, _) in hardware.wires.items():
        yield _interface(name, address, mtu, up=True)


def _interface(name: str, address: str | None, mtu: int, *, up: bool) -> dict[str, Any]:
    flags = ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"] if up else ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"]
    ipv6 = {"family": "inet6", "local": "fe80::4ebb:47ff:fe2a:6531", "prefixlen": 64}
    held = IPv4Interface(address) if address else None
    ipv4 = [{"family": "inet", "local": str(held.ip), "prefixlen": held.network.prefixlen}] if held else []
    return {"ifname": name, "flags": flags, "mtu": mtu, "addr_info": [*ipv4, ipv6]}


def _program(root: Path, name: str, body: str) -> None:
    file = root / "usr/bin" / name
    _put(file, f"#!/bin/sh\n{body}")
    file.chmod(0o755)


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
