"""The nftables rules of a node: who may connect to its engines and ranks. Nothing here runs anything.

The traffic between ranks has no authentication, Ray's token apart. torch's TCPStore, Ray's GCS and raylet listen on
every address of a node (measured with Ray 2.60.0 and `ss -ltn`); Gloo, NCCL and ZMQ listen on the fabric's address,
which Linux answers on every interface.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from sparkops.command import Command

TABLE = "inet sparkops"
CLEARED = f"table {TABLE} {{}}\ndelete table {TABLE}\n"
"""Removes the table, and succeeds without one."""
EPHEMERAL = Command(("cat", "/proc/sys/net/ipv4/ip_local_port_range"), timeout_s=10.0)
"""Prints the first and the last port that the kernel picks by itself."""


@dataclass(frozen=True)
class Firewall:
    """What a node closes. `callers`: by HTTP port of an engine, the addresses that may connect; the others may not.

    `peers`, where ranks of several nodes are here: the addresses of all ranks, which alone may connect to the
    `meeting_ports` and to ports that the kernel picks. `open_ports` stay open also where the kernel might pick them:
    SSH and the HTTP ports of services.
    """

    callers: Mapping[int, Iterable[str]] = field(default_factory=dict)
    peers: frozenset[str] = frozenset()
    meeting_ports: frozenset[int] = frozenset()
    open_ports: frozenset[int] = frozenset()


def apply(wall: Firewall, ephemeral: str) -> Command:
    """Replace all rules of sparkops in one transaction. `ephemeral` is the output of EPHEMERAL.

    Raises ValueError for text that is no IP address or no range of ports.
    """
    return Command(("nft", "-f", "-"), stdin=rules(wall, ephemeral).encode(), timeout_s=15.0, changes=True)


def rules(wall: Firewall, ephemeral: str) -> str:
    """Return the text for `nft -f`. Loopback stays open: guard, SSH and a gateway on the same node use it.

    The chain runs before those of Docker and ufw, and `accept` in it leaves their verdict to them.
    """
    lines = [line for port in sorted(wall.callers) for line in _port(port, wall.callers[port])]
    lines += _ranks(wall, ephemeral)
    if not lines:
        return CLEARED
    hook = "type filter hook input priority filter - 10; policy accept;"
    body = "\n".join(f"    {line}" for line in (hook, 'iifname "lo" accept', *lines))
    return f"{CLEARED}table {TABLE} {{\n  chain input {{\n{body}\n  }}\n}}\n"


def _port(port: int, callers: Iterable[str]) -> Iterator[str]:
    for sources in _sources(callers):
        yield f"tcp dport {port} {sources} accept"
    yield f"tcp dport {port} reject with tcp reset"


def _ranks(wall: Firewall, ephemeral: str) -> Iterator[str]:
    """New TCP connections to a rank are for ranks only. Replies to what the node itself opened pass."""
    if not wall.peers:
        return
    first, last = map(int, ephemeral.split())
    for sources in _sources(wall.peers):
        yield f"{sources} accept"
    if wall.open_ports:
        yield f"tcp dport {{ {_listed(wall.open_ports)} }} accept"
    ports = ", ".join([*map(str, sorted(wall.meeting_ports)), f"{first}-{last}"])
    yield f"tcp dport {{ {ports} }} tcp flags & (fin | syn | rst | ack) == syn drop"


def _sources(addresses: Iterable[str]) -> Iterator[str]:
    known = sorted({ip_address(address) for address in addresses}, key=lambda address: (address.version, address))
    for version, family in ((4, "ip"), (6, "ip6")):
        if sources := [str(address) for address in known if address.version == version]:
            yield f"{family} saddr {{ {', '.join(sources)} }}"


def _listed(ports: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ports)))
