"""The fleet's private network: its own subnet, so that every node keeps its address."""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from .shell import FleetError, docker

RESOLVERS = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))
ROUTES = Path("/proc/net/route")
FIRST_NODE = 11
FIRST_EXTRA = 101


def ensure(name: str, label: str, start: int) -> IPv4Network:
    """Fleets of other checkouts begin their search elsewhere, so addresses tend to stay."""
    try:
        return subnet(name)
    except FleetError:
        taken = routed()
    for offset in range(256):
        candidate = IPv4Network(f"10.77.{(start + offset) % 256}.0/24")
        if not any(candidate.overlaps(other) for other in taken) and create(name, label, candidate):
            return candidate
    raise FleetError("no subnet of 10.77.0.0/16 is free: remove networks that nobody uses")


def subnet(name: str) -> IPv4Network:
    cidr = docker("network", "inspect", "--format", "{{(index .IPAM.Config 0).Subnet}}", name)
    return IPv4Network(cidr)


def create(name: str, label: str, network: IPv4Network) -> bool:
    options = (f"--subnet={network}", f"--label={label}")
    width = f"--opt=com.docker.network.driver.mtu={mtu()}"
    try:
        docker("network", "create", *options, width, name)
    except FleetError as error:
        if "overlaps" in str(error):
            return False
        raise
    return True


def routed() -> list[IPv4Network]:
    """Subnets that this machine already has a way to; docker looks only at its own."""
    rows = [line.split() for line in ROUTES.read_text().splitlines()[1:]]
    pairs = [(little_endian(row[1]), little_endian(row[7])) for row in rows]
    return [IPv4Network(f"{address}/{mask}") for address, mask in pairs if int(mask)]


def mtu() -> int:
    """Of the way to the internet: a wider inner network loses large packets."""
    for line in ROUTES.read_text().splitlines()[1:]:
        device, destination = line.split()[:2]
        if destination == "00000000":
            return int(Path("/sys/class/net", device, "mtu").read_text())
    return 1500


def resolvers() -> tuple[str, ...]:
    """Name servers that a container can reach; none: Docker's own choice stands."""
    for file in RESOLVERS:
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        servers = [row[1] for row in rows if len(row) > 1 and row[0] == "nameserver"]
        usable = tuple(server for server in servers if not loopback(server))
        if usable:
            return usable
    return ()


def loopback(server: str) -> bool:
    return ipaddress.ip_address(server.partition("%")[0]).is_loopback


def little_endian(text: str) -> IPv4Address:
    return IPv4Address(int.from_bytes(bytes.fromhex(text), "little"))
