"""Ports of a node that can be an end of a link: read on the node, or named in the inventory. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

from sparkops.config.fabric import Port
from sparkops.config.inventory import NodeConfig
from sparkops.network.facts import Device, Interface, NodeFabric
from sparkops.network.finding import Finding, Severity, listed

ETHERNET = "Ethernet"  # the link layer of RoCE; the other one is InfiniBand
STEP = "Correct `fabric` of {node} in the inventory; `fabric: auto` reads it on the node."


@dataclass(frozen=True)
class End:
    """One address of a port. `device` is its RDMA device; None for plain TCP. `gid_index` None: no usable row."""

    node: str
    interface: Interface
    address: IPv4Interface
    device: Device | None = None
    gid_index: int | None = None
    named: bool = False
    """Whether the inventory names it."""

    @property
    def up(self) -> bool:
        """Whether it can carry data."""
        return self.interface.up and (self.device is None or self.device.active)

    @property
    def subnet(self) -> IPv4Network:
        """The network that its address is in: two ends in one network are a link."""
        return self.address.network

    def __str__(self) -> str:
        return f"{port_words(self.device, self.interface.name)} {self.address.ip}"


def port_words(device: Device | None, interface: str | None) -> str:
    """Return the name of a port in messages: rocep1s0f0 (enp1s0f0np0)."""
    return f"{device.name} ({interface})" if device else f"{interface}"


def rdma(node: str, facts: NodeFabric, config: NodeConfig) -> Iterator[End | Finding]:
    """Yield the ports for RoCE, and findings about the inventory."""
    if isinstance(config.fabric, list):
        for port in config.fabric:
            yield from _named(node, facts, port)
        return
    for device in facts.devices:
        if device.link_layer == ETHERNET:
            for interface in _interfaces(device, facts):
                yield from _ends(node, device, interface, _global(interface.addresses))


def tcp(node: str, facts: NodeFabric, config: NodeConfig) -> Iterator[End]:
    """Yield the ports for plain TCP. rdma() reports wrong names in the inventory."""
    if isinstance(config.fabric, list):
        for port in config.fabric:
            named = [end for end in _named(node, facts, port) if isinstance(end, End)]
            yield from (End(node, end.interface, end.address, named=True) for end in named)
        return
    for interface in facts.interfaces.values():
        if interface.up:
            yield from (End(node, interface, address) for address in _global(interface.addresses))


def halves(node: str, facts: NodeFabric, used: Collection[str]) -> Iterator[Finding]:
    """Yield devices whose twin is up and not `used` (names of devices): NCCL measured 98 instead of 161 Gbit/s.

    Source: tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35.
    """
    for device in facts.devices:
        for twin in facts.devices:
            twins = device.slot == twin.slot and device.slot and device.name in used and twin.name not in used
            if twins and twin.active:
                problem = f"{device.name} is used without its twin {port_words(twin, twin.interface)}: half of the port"
                step = f"Give {twin.interface} an address in its own subnet, at both ends."
                yield Finding(code="HALF_PORT", node=node, problem=problem, next_step=step, severity=Severity.WARNING)


def why_none(node: str, facts: NodeFabric) -> Iterator[str]:
    """Yield why each RDMA device of a node is not used."""
    devices = [device for device in facts.devices if device.link_layer == ETHERNET]
    if not devices:
        yield f"{node} has no RDMA device"
    for device in devices:
        port = f"{node}: {port_words(device, device.interface)}"
        interfaces = _interfaces(device, facts)
        addresses = [address for interface in interfaces for address in interface.addresses]
        if not device.active:
            yield f"{port} is {device.state.lower()}, {device.phys_state}"
        elif not any(interface.up for interface in interfaces):
            yield f"{port} has no carrier"
        elif not addresses:
            yield f"{port} has no IPv4 address"
        elif not _global(addresses):
            yield f"{port} has only the link-local address {addresses[0].ip}"
        else:
            yield f"{port} has {', '.join(str(address) for address in _global(addresses))}"


def _interfaces(device: Device, facts: NodeFabric) -> tuple[Interface, ...]:
    """Return its own interface, and those that its GID table names, such as a VLAN."""
    names = dict.fromkeys([device.interface or "", *(gid.interface for gid in device.gids)])
    return tuple(facts.interfaces[name] for name in names if name in facts.interfaces)


def _global(addresses: Iterable[IPv4Interface]) -> list[IPv4Interface]:
    """Leave out 169.254.0.0/16, where every port seems to be in one network, and 127.0.0.0/8."""
    return [address for address in addresses if not address.is_link_local and not address.is_loopback]


def _ends(
    node: str, device: Device | None, interface: Interface, addresses: Iterable[IPv4Interface], *, named: bool = False
) -> Iterator[End]:
    for address in addresses:
        gids = device.gids if device else ()
        rows = (gid.index for gid in gids if (gid.address, gid.interface) == (address.ip, interface.name))
        yield End(node, interface, address, device, next(rows, None), named)


def _named(node: str, facts: NodeFabric, port: Port) -> Iterator[End | Finding]:
    device = next((device for device in facts.devices if device.name == port.device), None)
    name = port.interface or (device.interface if device else None)
    interface = facts.interfaces.get(name or "")
    if port.device and device is None:
        names = listed(device.name for device in facts.devices)
        yield _wrong(node, f"RDMA device {port.device} not found, expected one of: {names}")
    elif interface is None:
        yield _wrong(node, f"interface {name} not found, expected one of: {listed(facts.interfaces)}")
    else:
        yield from _addressed(node, device, interface, port)


def _addressed(node: str, device: Device | None, interface: Interface, port: Port) -> Iterator[End | Finding]:
    if port.address:
        addresses = [address for address in interface.addresses if str(address.ip) == port.address]
    else:
        addresses = _global(interface.addresses) or list(interface.addresses)
    if not addresses:
        has = listed(str(address.ip) for address in interface.addresses)
        yield _wrong(
            node, f"{interface.name} has no IPv4 address {port.address or ''}, it has: {has}".replace(" ,", ",")
        )
    for end in _ends(node, device, interface, addresses, named=True):
        if device and port.gid_index not in (None, end.gid_index):
            has = f"row {end.gid_index}" if end.gid_index is not None else "no row"
            problem = f"row {port.gid_index} of {device.name} is not RoCE v2 with {end.address.ip}; {has} is"
            yield _wrong(node, problem)
        else:
            yield end


def _wrong(node: str, problem: str) -> Finding:
    return Finding(code="FABRIC_NAMED", node=node, problem=problem, next_step=STEP.format(node=node))
