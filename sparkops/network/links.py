"""Links between nodes: subnets join ports, which have other names on every node; and their problems. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import combinations

from sparkops.network.finding import Finding, Severity, listed
from sparkops.network.ports import End


@dataclass(frozen=True)
class Link:
    """One subnet with a port of every node. `ends` has one for each node, in the nodes' order."""

    subnet: IPv4Network
    ends: tuple[End, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(end.node for end in self.ends)

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
    """Return a link for each subnet with a port of every node, unless all are down. A port is in one link only."""
    by_subnet: dict[IPv4Network, dict[str, End]] = {}
    for end in sorted(ends, key=lambda end: not end.up):
        by_subnet.setdefault(end.subnet, {}).setdefault(end.node, end)
    links: list[Link] = []
    taken: set[tuple[str, str]] = set()
    for subnet, by_node in sorted(by_subnet.items()):
        ports = {(end.node, end.device.name if end.device else end.interface.name) for end in by_node.values()}
        usable = any(end.up or end.named for end in by_node.values())
        if set(by_node) == set(nodes) and usable and not ports & taken:
            links.append(Link(subnet, tuple(by_node[node] for node in nodes)))
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
        yield Finding(code="SAME_ADDRESS", node=last.node, problem=problem, next_step=step)
    for end in link.ends:
        if not end.up:
            state = end.device.phys_state if end.device and not end.device.active else "no carrier"
            problem = f"the link {link} is broken: {end.interface.name} is down there ({state})"
            step = f"Check its cable, and: ip link show {end.interface.name}"
            yield Finding(code="LINK_DOWN", node=end.node, problem=problem, next_step=step)
        elif end.device and end.gid_index is None:
            row = f"no RoCE v2 row for {end.address.ip} of {end.interface.name}"
            problem = f"{end.device.name} has {row} in its GID table"
            step = f"Set {end.interface.name} down and up again, then check: show_gids {end.device.name}"
            yield Finding(code="NO_GID", node=end.node, problem=problem, next_step=step)
    yield from _mtu(link, mtu)


def _twins(link: Link, ends: Iterable[End]) -> Iterator[Finding]:
    """Yield ports of one node in one network: the kernel answers for both through either of them."""
    for one, two in combinations([end for end in ends if end.subnet == link.subnet], 2):
        if one.node == two.node and one.interface.name != two.interface.name:
            problem = f"{one} and {two} are both in {link.subnet}"
            step = "Use one subnet for each cable, the same at both ends."
            yield Finding(code="SAME_SUBNET", node=one.node, problem=problem, next_step=step)


def _mtu(link: Link, least: int) -> Iterator[Finding]:
    """Yield ends with too small an MTU: TCP negotiates it, too long RoCE packets are dropped silently."""
    expected = max(least, *(end.interface.mtu for end in link.ends))
    sizes = ", ".join(f"{end.interface.mtu} at {end.node} {end.interface.name}" for end in link.ends)
    for end in link.ends:
        if end.interface.mtu < expected:
            yield Finding(
                code="MTU",
                node=end.node,
                problem=f"MTU of the link {link.subnet}: {sizes}; {expected} expected at each end",
                next_step=f"sudo ip link set {end.interface.name} mtu {expected}; set it in the netplan file too",
                severity=Severity.PROBLEM if least else Severity.WARNING,
            )


def alone(ends: Iterable[End], links: Iterable[Link]) -> Iterator[Finding]:
    """Yield ports that lead to no other node: a problem where the inventory names them, else a warning."""
    used = {(end.node, end.interface.name) for link in links for end in link.ends}
    unused = [end for end in ends if (end.node, end.interface.name) not in used and (end.up or end.named)]
    lopsided = {end: other for end in unused for other in unused if _lopsided(end, other)}
    for end in unused:
        if other := lopsided.get(end):
            problem = f"{end.interface.name} has {end.address}, {other.node} {other.interface.name} has {other.address}"
            step = "Use the same prefix length at both ends, such as /24."
            yield Finding(code="SUBNET", node=end.node, problem=problem, next_step=step)
        else:
            problem = f"{end} reaches no other node over {end.subnet}"
            step = f"Give its other end an address in {end.subnet}, or leave it out of `fabric` in the inventory."
            severity = Severity.PROBLEM if end.named else Severity.WARNING
            yield Finding(code="NO_PEER", node=end.node, problem=problem, next_step=step, severity=severity)


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
            yield Finding(code="CROSSED", node=node, problem=problem, next_step=step, severity=Severity.WARNING)


def _sorted(links: Sequence[Link], node: str) -> list[Link]:
    """Return the links in the order of the node's devices, which is that of their PCI addresses."""
    ends = {link: next(end for end in link.ends if end.node == node) for link in links}
    return sorted(links, key=lambda link: (end.device.pci, end.device.name) if (end := ends[link]).device else ("", ""))
