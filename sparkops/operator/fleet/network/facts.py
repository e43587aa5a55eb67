"""The network of a node: RDMA devices, their GID tables, interfaces. A query and its parser."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address
from typing import Any

from sparkops import foreign
from sparkops.command import Command

# $1 is a prefix of /sys, /dev and /usr: empty on a node, a directory in tests.
# One grep reads many files: a GID table has 256 rows, and reading most of them fails.
FABRIC_SCRIPT = """\
PATH="$1/usr/sbin:$1/usr/bin:$PATH"
export LC_ALL=C
echo "== words"
echo "kernel $(uname -r)"
echo "memlock $(ulimit -l)"
echo "driver $(cat "$1/sys/module/nvidia/version" 2>/dev/null ||
  timeout 5 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1)"
for tool in ping ib_write_bw; do
  if command -v "$tool" >/dev/null; then echo "tool $tool"; fi
done
for file in "$1"/dev/infiniband/*; do
  if [ -e "$file" ]; then echo "rdma ${file##*/}"; fi
done
echo "== sysfs"
cd "$1/sys/class" || exit 1
for device in infiniband/*; do
  if [ -e "$device/device" ]; then echo "$device/pci:$(basename "$(readlink -f "$device/device")")"; fi
  for interface in "$device"/device/net/*; do
    if [ -e "$interface" ]; then echo "$device/net:${interface##*/}"; fi
  done
done
grep -sH . infiniband/*/fw_ver infiniband/*/ports/*/state infiniband/*/ports/*/phys_state \\
  infiniband/*/ports/*/rate infiniband/*/ports/*/link_layer net/*/speed 2>/dev/null
grep -sH '[1-9a-f]' infiniband/*/ports/*/gids/* 2>/dev/null
grep -sH . infiniband/*/ports/*/gid_attrs/types/* infiniband/*/ports/*/gid_attrs/ndevs/* 2>/dev/null
echo "== addresses"
ip -j addr
"""
SECTIONS = ("words", "sysfs", "addresses")
PORT_FILE = re.compile(r"infiniband/([^/]+)/ports/(\d+)/(.+)")


@dataclass(frozen=True)
class Interface:
    """A network interface. `up`: it has a carrier. MTU in bytes, speed in Mbit/s, None if unknown."""

    name: str
    up: bool
    mtu: int
    speed_mbit_s: int | None = None
    addresses: tuple[IPv4Interface, ...] = ()


@dataclass(frozen=True)
class Gid:
    """A row of a GID table that RoCE v2 over IPv4 can use: its number, its address, the interface of the address."""

    index: int
    address: IPv4Address
    interface: str


@dataclass(frozen=True)
class Device:
    """A port of an RDMA device. State and rate are the driver's words, such as ACTIVE and 200 Gb/sec (2X NDR).

    `pci` is domain:bus:slot.function. The two functions of one physical port of a Spark differ in the domain only.
    """

    name: str
    port: int
    state: str
    phys_state: str
    rate: str
    link_layer: str
    pci: str
    firmware: str
    interface: str | None
    gids: tuple[Gid, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it can carry data."""
        return self.state == "ACTIVE"

    @property
    def slot(self) -> str:
        """Its PCI address without the domain, which its twin shares."""
        return self.pci.partition(":")[2]


@dataclass(frozen=True)
class NodeFabric:
    """The network of one node. `memlock_kib` is the user's limit in KiB, None without a limit."""

    interfaces: Mapping[str, Interface]
    devices: tuple[Device, ...]
    rdma_files: frozenset[str]
    memlock_kib: int | None
    tools: frozenset[str]
    driver: str
    kernel: str

    @property
    def addresses(self) -> Iterator[tuple[Interface, IPv4Interface]]:
        """Every IPv4 address with its interface."""
        return ((interface, address) for interface in self.interfaces.values() for address in interface.addresses)


def fabric_query(root: str = "") -> Command:
    """Query the network of a node, in one round trip."""
    return Command(("sh", "-c", FABRIC_SCRIPT, "sparkops", root), timeout_s=8.0)


def parse_fabric(text: str) -> NodeFabric:
    """Parse the output of fabric_query(). Raises ValueError for other text."""
    sections = _sections(text)
    words = [line.partition(" ")[::2] for line in sections["words"]]
    values = dict(words)
    files = [line.partition(":")[::2] for line in sections["sysfs"]]
    speeds = {path.split("/")[1]: int(value) for path, value in files if path.startswith("net/")}
    addresses = foreign.loads("\n".join(sections["addresses"]) or "[]")
    try:
        return NodeFabric(
            interfaces={entry["ifname"]: _interface(entry, speeds) for entry in addresses if "ifname" in entry},
            devices=tuple(_devices(files)),
            rdma_files=frozenset(value for key, value in words if key == "rdma"),
            memlock_kib=None if values["memlock"] == "unlimited" else int(values["memlock"]),
            tools=frozenset(value for key, value in words if key == "tool"),
            driver=values["driver"],
            kernel=values["kernel"],
        )
    except KeyError as missing:
        raise ValueError(f"no {missing} in {text[:200]!r}") from None


def _sections(text: str) -> Mapping[str, list[str]]:
    """Return the lines after each mark, without what a login shell prints before the first one."""
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("== "):
            sections[line[3:]] = []
        elif sections:
            sections[next(reversed(sections))].append(line)
    for name in SECTIONS:
        if name not in sections:
            raise ValueError(f"no section {name!r} in {text[:200]!r}")
    return sections


def _interface(interface: Mapping[str, Any], speeds: Mapping[str, int]) -> Interface:
    speed = speeds.get(interface["ifname"], -1)
    inet = [address for address in interface["addr_info"] if address["family"] == "inet"]
    return Interface(
        name=interface["ifname"],
        up="LOWER_UP" in interface["flags"],
        mtu=interface["mtu"],
        speed_mbit_s=speed if speed > 0 else None,  # -1 is unknown, as for virtual interfaces
        addresses=tuple(IPv4Interface(f"{address['local']}/{address['prefixlen']}") for address in inet),
    )


def _devices(files: Iterable[tuple[str, str]]) -> Iterator[Device]:
    """Yield a device for each port (nearly all have one), in the order of PCI addresses."""
    values: dict[str, str] = {}
    ports: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    for path, value in files:
        if inner := PORT_FILE.fullmatch(path):
            ports[inner[1], int(inner[2])][inner[3]] = value
        else:
            values[path] = value
    for name, port in sorted(ports, key=lambda key: (values.get(f"infiniband/{key[0]}/pci", ""), key)):
        attributes = ports[name, port]
        yield Device(
            name=name,
            port=port,
            state=attributes["state"].partition(": ")[2],  # ACTIVE of `4: ACTIVE`
            phys_state=attributes["phys_state"].partition(": ")[2],
            rate=attributes["rate"],
            link_layer=attributes["link_layer"],
            pci=values.get(f"infiniband/{name}/pci", ""),
            firmware=values.get(f"infiniband/{name}/fw_ver", ""),
            interface=values.get(f"infiniband/{name}/net"),
            gids=tuple(_gids(attributes)),
        )


def _gids(attributes: Mapping[str, str]) -> Iterator[Gid]:
    """Yield the usable rows. Each GID has two rows, for RoCE v1 and v2; link-local rows are of no use."""
    for index in sorted(int(path.removeprefix("gids/")) for path in attributes if path.startswith("gids/")):
        address = IPv6Address(attributes[f"gids/{index}"]).ipv4_mapped
        if address and attributes.get(f"gid_attrs/types/{index}") == "RoCE v2":
            yield Gid(index, address, attributes.get(f"gid_attrs/ndevs/{index}", ""))
