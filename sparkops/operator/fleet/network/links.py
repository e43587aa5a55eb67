"""Ports of the nodes that can carry data, and the links between them. Pure.

Ports are read on the node, or named in the inventory. Subnets join them: they have other names on every node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network
from itertools import combinations

from sparkops.config.fabric import Port
from sparkops.config.node import NodeConfig
from sparkops.node.network.finding import Finding, Kind, Severity, listed
from sparkops.operator.fleet.network.facts import Device, Interface, NodeFabric

NCCL_FAILS = "Ranks use this link: NCCL fails on it, or waits for its timeout of 600 s."
MTU_DIFFERS = "TCP negotiates a packet size; RoCE drops larger packets without an error."
FABRIC_NAMED = Kind("FABRIC_NAMED", "The inventory names a port that the node does not have.")
SAME_ADDRESS = Kind("SAME_ADDRESS", NCCL_FAILS)
LINK_DOWN = Kind("LINK_DOWN", NCCL_FAILS)
NO_GID = Kind("NO_GID", NCCL_FAILS)
SUBNET = Kind("SUBNET", NCCL_FAILS)
MTU = Kind("MTU", MTU_DIFFERS)
SAME_SUBNET = Kind(
    "SAME_SUBNET",
    "The kernel answers for both ports through either of them (docs/NETWORKING.md of eugr/spark-vllm-docker).",
)
NO_PEER = Kind("NO_PEER", "A port without a peer carries no traffic.", Severity.WARNING)
CROSSED = Kind(
    "CROSSED", "NCCL pairs devices by their order (AINode 0.5.11: ibv_modify_qp timed out).", Severity.WARNING
)
HALF_PORT = Kind(
    "HALF_PORT",
    "98 instead of 161 Gbit/s (tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35).",
    Severity.WARNING,
)

LINK_LOCAL = Kind(
    "LINK_LOCAL",
    "169.254.0.0/16 is one network for every port, so that no address says which ports share a cable.",
    Severity.WARNING,
)

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


def rdma_ports(node: str, facts: NodeFabric, config: NodeConfig) -> Iterator[End | Finding]:
    """Yield the ports for RoCE, and findings about the inventory."""
    if isinstance(config.fabric, list):
        for port in config.fabric:
            yield from _named(node, facts, port)
        return
    for device in facts.devices:
        if device.link_layer == ETHERNET:
            for interface in _interfaces(device, facts):
                yield from _ends(node, device, interface, _global(interface.addresses))


def tcp_ports(node: str, facts: NodeFabric, config: NodeConfig) -> Iterator[End]:
    """Yield the ports for plain TCP. rdma_ports() reports wrong names in the inventory."""
    if isinstance(config.fabric, list):
        for port in config.fabric:
            named = [end for end in _named(node, facts, port) if isinstance(end, End)]
            yield from (End(node, end.interface, end.address, named=True) for end in named)
        return
    for interface in facts.interfaces.values():
        if interface.up:
            yield from (End(node, interface, address) for address in _global(interface.addresses))


def lan_ports(facts: Mapping[str, NodeFabric], configs: Mapping[str, NodeConfig]) -> Iterator[End]:
    """Yield the ports on which the ranks of a ring may meet: all, or those without RDMA that the inventory names."""
    for node, known in facts.items():
        config = configs[node]
        plain = [port for port in config.fabric if port.device is None] if isinstance(config.fabric, list) else []
        yield from tcp_ports(node, known, config.model_copy(update={"fabric": plain or "auto"}))


def half_ports(
    node: str, facts: NodeFabric, used: Collection[str], subnets: Collection[IPv4Network]
) -> Iterator[Finding]:
    """Yield devices whose twin is up and not `used` (names of devices): NCCL measured 98 instead of 161 Gbit/s.

    A twin with an address in one of `subnets`, which the links have, is a finding of its own.

    Source: tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35.
    """
    for device in facts.devices:
        for twin in facts.devices:
            twins = device.slot == twin.slot and device.slot and device.name in used and twin.name not in used
            there = {one.network for interface in _interfaces(twin, facts) for one in interface.addresses}
            if twins and twin.active and not there & {*subnets}:
                problem = f"{device.name} is used without its twin {port_words(twin, twin.interface)}: half of the port"
                step = f"Give {twin.interface} an address in its own subnet, at both ends."
                yield HALF_PORT.at(node, problem, step)


def link_local(facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """Yield the nodes whose ports with a carrier have only link-local addresses, with the command for each."""
    for node, known in facts.items():
        for number, (interface, addresses) in enumerate(_with_carrier(known)):
            if addresses and not _global(addresses):
                problem = f"{interface.name} has only the link-local address {addresses[0].ip}"
                host = int(addresses[0].ip) % 256 or 1  # another one on each node, whichever pair is looked at
                command = f"sudo ip addr add 192.168.{100 + number}.{host}/24 dev {interface.name}"
                yield LINK_LOCAL.at(node, problem, f"{command}; set it in the netplan file too")


def _with_carrier(facts: NodeFabric) -> Iterator[tuple[Interface, Sequence[IPv4Interface]]]:
    for device in facts.devices:
        for interface in _interfaces(device, facts) if device.link_layer == ETHERNET and device.active else ():
            if interface.up:
                yield interface, interface.addresses


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
    return FABRIC_NAMED.at(node, problem, STEP.format(node=node))


@dataclass(frozen=True)
class Link:
    """One subnet with a port of several nodes. `ends` has one for each of them, in the nodes' order."""

    subnet: IPv4Network
    ends: tuple[End, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(end.node for end in self.ends)

    def end(self, node: str) -> End | None:
        """Return the port of a node; None if the subnet is none of its."""
        return next((end for end in self.ends if end.node == node), None)

    @property
    def mtu(self) -> int:
        """The largest packet for every end, in bytes."""
        return min(end.interface.mtu for end in self.ends)

    @property
    def speed_mbit_s(self) -> int:
        """Speed of its slowest end; 0 where it is unknown."""
        return min(end.interface.speed_mbit_s or 0 for end in self.ends)

    @property
    def same_address(self) -> bool:
        """Whether two ends have one address: a mistake, or a bridge of each node alone."""
        return len({end.address.ip for end in self.ends}) < len(self.ends)

    def __str__(self) -> str:
        return f"{self.subnet}: " + " - ".join(f"{end.node} {end}" for end in self.ends)


def find(ends: Iterable[End], nodes: Sequence[str]) -> tuple[Link, ...]:
    """Return a link for each subnet with a port of every node, unless all are down. A port is in one link only.

    Where no subnet has a port of every node, those with ports of some: the cables of a ring.
    """
    by_subnet: dict[IPv4Network, dict[str, End]] = {}
    for end in sorted(ends, key=lambda end: not end.up):
        by_subnet.setdefault(end.subnet, {}).setdefault(end.node, end)
    links: list[Link] = []
    taken: set[tuple[str, str]] = set()
    most = max(map(len, by_subnet.values()), default=0)
    for subnet, by_node in sorted(by_subnet.items()):
        ports = {(end.node, end.device.name if end.device else end.interface.name) for end in by_node.values()}
        usable = any(end.up or end.named for end in by_node.values())
        joins = len(by_node) == len(nodes) or (len(by_node) > 1 and most < len(nodes))
        if joins and usable and not ports & taken:
            links.append(Link(subnet, tuple(by_node[node] for node in nodes if node in by_node)))
            taken |= ports
    return tuple(links)


def broken(link: Link, ends: Iterable[End], mtu: int) -> Iterator[Finding]:
    """Yield what keeps a link from working. `mtu` is the least for RoCE, in bytes; 0 for plain TCP."""
    yield from _twins(link, ends)
    if link.same_address:
        last = link.ends[-1]
        problem, step = (
            f"the link {link} has the same address at both ends",
            f"Set another address for {last.interface.name} there.",
        )
        yield SAME_ADDRESS.at(last.node, problem, step)
    for end in link.ends:
        if not end.up:
            state = end.device.phys_state if end.device and not end.device.active else "no carrier"
            problem = f"the link {link} is broken: {end.interface.name} is down there ({state})"
            step = f"Check its cable, and: ip link show {end.interface.name}"
            yield LINK_DOWN.at(end.node, problem, step)
        elif end.device and end.gid_index is None:
            row = f"no RoCE v2 row for {end.address.ip} of {end.interface.name}"
            problem = f"{end.device.name} has {row} in its GID table"
            step = f"Set {end.interface.name} down and up again, then check: show_gids {end.device.name}"
            yield NO_GID.at(end.node, problem, step)
    yield from _mtu(link, mtu)


def _twins(link: Link, ends: Iterable[End]) -> Iterator[Finding]:
    """Yield ports of one node in one network: the kernel answers for both through either of them.

    The two halves of one port are one finding for all nodes, with a subnet for the second half at each.
    """
    known = [*ends]
    shared = [
        (one, two)
        for one, two in combinations([end for end in known if end.subnet == link.subnet], 2)
        if one.node == two.node and one.interface.name != two.interface.name
    ]
    halves = [(one, two) for one, two in shared if _halves(one, two)]
    if halves:
        one, two = halves[0]
        also = f", as on {listed(first.node for first, _ in halves[1:])}" if halves[1:] else ""
        second = _free_subnet(link.subnet, {end.subnet for end in known})
        moved = (f"{end.node}: {_move(end, second)}" for _, end in halves)
        problem = f"the two halves of one port, {one} and {two}, are both in {link.subnet}{also}"
        yield SAME_SUBNET.at(one.node, problem, "\n".join([*moved, "Set it in the netplan files too."]))
    for one, two in shared:
        if not _halves(one, two):
            step = "Use one subnet for each cable, the same at both ends."
            yield SAME_SUBNET.at(one.node, f"{one} and {two} are both in {link.subnet}", step)


def _halves(one: End, two: End) -> bool:
    """Return whether two ends are the two PCI functions of one port."""
    return bool(one.device and two.device and one.device.slot and one.device.slot == two.device.slot)


def _free_subnet(subnet: IPv4Network, taken: Collection[IPv4Network]) -> IPv4Network:
    """Return the next network of this size that no port is in."""
    size, first = subnet.num_addresses, int(subnet.network_address)
    following = (IPv4Network((first + number * size, subnet.prefixlen)) for number in range(1, 65))
    return next(network for network in following if network not in taken)


def _move(end: End, subnet: IPv4Network) -> str:
    host = int(end.address.ip) - int(end.subnet.network_address)
    new = f"{subnet.network_address + host}/{subnet.prefixlen}"
    name = end.interface.name
    return f"sudo ip addr add {new} dev {name} && sudo ip addr del {end.address} dev {name}"


def _mtu(link: Link, least: int) -> Iterator[Finding]:
    """Yield ends with too small an MTU: TCP negotiates it, too long RoCE packets are dropped silently."""
    expected = max(least, *(end.interface.mtu for end in link.ends))
    sizes = ", ".join(f"{end.interface.mtu} at {end.node} {end.interface.name}" for end in link.ends)
    for end in link.ends:
        if end.interface.mtu < expected:
            problem = f"MTU of the link {link.subnet}: {sizes}; {expected} expected at each end"
            step = f"sudo ip link set {end.interface.name} mtu {expected}; set it in the netplan file too"
            yield MTU.at(end.node, problem, step, severity=Severity.PROBLEM if least else Severity.WARNING)


def alone(ends: Iterable[End], links: Iterable[Link]) -> Iterator[Finding]:
    """Yield ports that lead to no other node: a problem where the inventory names them, else a warning."""
    joined = [*links]
    used, subnets = (
        {(end.node, end.interface.name) for link in joined for end in link.ends},
        {one.subnet for one in joined},
    )
    unused = [end for end in ends if (end.node, end.interface.name) not in used and (end.up or end.named)]
    lopsided = {end: other for end in unused for other in unused if _lopsided(end, other)}
    for end in unused:
        if other := lopsided.get(end):
            problem = f"{end.interface.name} has {end.address}, {other.node} {other.interface.name} has {other.address}"
            step = "Use the same prefix length at both ends, such as /24."
            yield SUBNET.at(end.node, problem, step)
        elif end.subnet not in subnets:  # else it shares a link's subnet with another port of its node
            problem = f"{end} reaches no other node over {end.subnet}"
            step = f"Give its other end an address in {end.subnet}, or leave it out of `fabric` in the inventory."
            severity = Severity.PROBLEM if end.named else Severity.WARNING
            yield NO_PEER.at(end.node, problem, step, severity=severity)


def _lopsided(one: End, two: End) -> bool:
    """Return whether they reach each other's address, and disagree on the size of their network."""
    apart = one.node != two.node and one.subnet != two.subnet
    return apart and (two.address.ip in one.subnet or one.address.ip in two.subnet)


def crossed(links: Sequence[Link]) -> Iterator[Finding]:
    """Yield nodes whose links are in another order of devices: NCCL pairs devices by their order.

    Two sources: AINode 0.5.11 (ibv_modify_qp timed out between devices that it had paired by their place), and NVIDIA's
    playbook for two Sparks, which requires the same port on both.
    """
    orders = {node: [link.subnet for link in _sorted(links, node)] for node in (links[0].nodes if links else ())}
    first = next(iter(orders.values()), [])
    for node, order in orders.items():
        if order != first:
            problem = f"its devices are in {listed(order)}, in this order; those of the first node in {listed(first)}"
            step = "If NCCL times out in ibv_modify_qp: use the same ports on all nodes, or swap the addresses of two."
            yield CROSSED.at(node, problem, step)


def same_ports(links: Sequence[Link]) -> Iterator[Finding]:
    """Yield the cables of a ring that join ports of the same number.

    Source: docs/NETWORKING.md of eugr/spark-vllm-docker, where port 0 of each Spark leads to port 1 of the next one.
    """
    cables = {link.nodes: link for link in reversed(links)}
    for nodes, link in reversed(cables.items()):
        numbers = [end.device.slot.rpartition(".")[2] for end in link.ends if end.device]
        if numbers[1:] and len({*numbers}) == 1:
            problem = f"the cable {link} joins port {numbers[0]} to port {numbers[0]}, expected port 0 to port 1"
            step = f"If NCCL times out in ibv_modify_qp: move the cable between {listed(nodes)} at one end."
            yield CROSSED.at(nodes[-1], problem, step)


def _sorted(links: Sequence[Link], node: str) -> list[Link]:
    """Return the links in the order of the node's devices, which is that of their PCI addresses."""
    ends = {link: next(end for end in link.ends if end.node == node) for link in links}
    return sorted(links, key=lambda link: (end.device.pci, end.device.name) if (end := ends[link]).device else ("", ""))
