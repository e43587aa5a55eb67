"""The nftables rules of a node, which limit connections to its engines and ranks, and the ports that lack a rule. Pure.

The traffic between ranks has no authentication, Ray's token apart. torch's TCPStore, Ray's GCS and raylet listen on
every address of a node (measured with Ray 2.60.0 and `ss -ltn`); Gloo, NCCL and ZMQ listen on the fabric's address,
which Linux answers on every interface.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from sparkops.command import Command
from sparkops.engines import runtime
from sparkops.names import Slot
from sparkops.node.docker import places
from sparkops.node.docker.facts import Container
from sparkops.node.network.finding import Finding, Kind, Severity

TABLE = "inet sparkops"
CLEARED = f"table {TABLE} {{}}\ndelete table {TABLE}\n"
"""Removes the table, and succeeds without one."""
ACCEPTING = (0, runtime.USER, places.GATEWAY_USER)
"""Users whose programs accept connections on the ports of engines; the port of another service may be among them."""
EPHEMERAL = Command(("cat", "/proc/sys/net/ipv4/ip_local_port_range"), timeout_s=10.0)
"""Prints the first and the last port that the kernel picks by itself."""
PRESENT = Command(("nft", "list", "ruleset", "inet"), timeout_s=15.0)
"""Lists every table, so that a missing one is no error. Run by the guard itself, as RULESET by others."""
RULESET = Command(("docker", "exec", places.CONTAINER, *PRESENT.argv), timeout_s=30.0)
CLOSED_PORTS = re.compile(r"^[ \t]*tcp dport (?:(\d+) reject|\{ ([^{}]*) \} tcp flags [^{}\n]* drop)\b", re.MULTILINE)
"""The rule of an engine, and that of ranks: their rendezvous ports, then the range that the kernel picks from."""

OPEN = "Any client that reaches the port can use the engine without a key, or disturb the ranks."
ENGINE_OPEN = Kind("ENGINE_OPEN", OPEN, Severity.WARNING)
FILTER_MISSING = Kind("FILTER_MISSING", OPEN, Severity.WARNING)
FILTER_UNKNOWN = Kind("FILTER_UNKNOWN", OPEN, Severity.WARNING)


@dataclass(frozen=True)
class Firewall:
    """The ports that a node closes. `callers`: by HTTP port of an engine, the only addresses that may connect.

    `peers`: with ranks of several nodes, the addresses of all ranks, which alone may connect to the `rendezvous_ports`
    and to ports that the kernel picks. `open_ports` stay open in that range too: SSH and HTTP ports of services.
    """

    callers: Mapping[int, Iterable[str]] = field(default_factory=dict)
    peers: frozenset[str] = frozenset()
    rendezvous_ports: frozenset[int] = frozenset()
    open_ports: frozenset[int] = frozenset()
    engine_ports: frozenset[int] = frozenset()
    """Ports of engines and their rendezvous, on which no other user's program accepts a connection."""


def apply(wall: Firewall, ephemeral: str) -> Command:
    """Replace all rules of sparkops in one transaction. `ephemeral` is the output of EPHEMERAL.

    Raises ValueError for text that is no IP address or no range of ports.
    """
    return Command(("nft", "-f", "-"), stdin=rules(wall, ephemeral).encode(), timeout_s=15.0, changes=True)


def rules(wall: Firewall, ephemeral: str) -> str:
    """Return the text for `nft -f`. Loopback stays open: guard, SSH and a gateway on the same node use it.

    `accept` in a chain leaves the verdict of Docker's and ufw's chains to them.
    """
    lines = [line for port in sorted(wall.callers) for line in _port(port, wall.callers[port])]
    lines += _ranks(wall, ephemeral)
    chains = _chain("input", ('iifname "lo" accept', *lines)) if lines else ""
    chains += _chain("output", _accepting(wall.engine_ports)) if wall.engine_ports else ""
    return f"{CLEARED}table {TABLE} {{\n{chains}}}\n" if chains else CLEARED


def _chain(hook: str, lines: Iterable[str]) -> str:
    """Return a chain of the table. It runs before those of Docker and ufw."""
    ordered = (f"type filter hook {hook} priority filter - 10; policy accept;", *lines)
    return "".join((f"  chain {hook} {{\n", *(f"    {line}\n" for line in ordered), "  }\n"))


def _accepting(ports: Iterable[int]) -> Iterator[str]:
    """Yield the rules that drop what begins a connection from these ports, unless an engine, the gateway or root did.

    Whoever binds the port of an engine before it does gets no connection, from loopback neither: not by accepting one
    (its SYN-ACK is dropped), nor by connecting back to a client that still waits (its SYN, RFC 9293 section 3.5). The
    SYN-ACK of a SYN cookie has no user, so the kernel drops it, whoever listens. Without SYN, as in the RST of a closed
    port, packets pass.
    """
    begins = f"tcp sport {{ {', '.join(map(str, sorted(ports)))} }} tcp flags & syn == syn"
    yield f"{begins} meta skuid {{ {', '.join(map(str, ACCEPTING))} }} accept"
    yield f"{begins} drop"


def _port(port: int, callers: Iterable[str]) -> Iterator[str]:
    for sources in _sources(callers):
        yield f"tcp dport {port} {sources} accept"
    yield f"tcp dport {port} reject with tcp reset"


def _ranks(wall: Firewall, ephemeral: str) -> Iterator[str]:
    """Yield rules that accept new TCP connections to a rank from ranks only. Replies to the node itself pass."""
    if not wall.peers:
        return
    first, last = map(int, ephemeral.split())
    for sources in _sources(wall.peers):
        yield f"{sources} accept"
    if wall.open_ports:
        yield f"tcp dport {{ {', '.join(map(str, sorted(wall.open_ports)))} }} accept"
    ports = ", ".join([*map(str, sorted(wall.rendezvous_ports)), f"{first}-{last}"])
    yield f"tcp dport {{ {ports} }} tcp flags & (fin | syn | rst | ack) == syn drop"


def _sources(addresses: Iterable[str]) -> Iterator[str]:
    ordered = sorted({ip_address(address) for address in addresses}, key=lambda address: (address.version, address))
    for version, family in ((4, "ip"), (6, "ip6")):
        if sources := [str(address) for address in ordered if address.version == version]:
            yield f"{family} saddr {{ {', '.join(sources)} }}"


def closed_ports(text: str) -> frozenset[int]:
    """Return the ports that the table of sparkops closes, of the output of RULESET; none without that table."""
    table = f"\n{text}".partition(f"\ntable {TABLE} {{\n")[2].partition("\n}")[0]
    ports = (port for rule in CLOSED_PORTS.finditer(table) for port in (rule[1] or rule[2]).split(", "))
    return frozenset(int(port) for port in ports if port.isdecimal())


def restricted(containers: Iterable[Container]) -> Mapping[int, tuple[str, ...]]:
    """Return the addresses that may connect to each port which is not open to all.

    A port belongs to the container that runs, else to the first one: Docker lists the newest first.
    """
    owners: dict[int, Container] = {}
    for container in sorted(containers, key=lambda container: not container.running):
        if container.rank == 0 and container.port:
            owners.setdefault(container.port, container)
    return {port: owner.callers for port, owner in owners.items() if owner.callers is not None}


def of_containers(containers: Collection[Container], gateway: Collection[str] = ()) -> Firewall:
    """Return the firewall for the containers of a node, running or not: ports are closed before an engine starts.

    The rendezvous port of rank 0 stays closed even if it is a port of another service, unless that one runs now.
    `gateway`: addresses of the gateway's node, if it is another one. It may have moved since an engine was created.
    """
    ranks = [container for container in containers if container.peers]
    http = (port for container in containers for port in _http_ports(container))
    served = {container.port for container in containers if container.running and container.rank == 0}
    met = {rank.rendezvous_port for rank in ranks if rank.rank == 0} - served
    return Firewall(
        callers={port: (*named, *gateway) if named else named for port, named in restricted(containers).items()},
        peers=frozenset(peer for rank in ranks for peer in rank.peers),
        rendezvous_ports=frozenset(rank.rendezvous_port for rank in ranks if rank.rendezvous_port),
        open_ports=frozenset(port for port in (*http, *(rank.ssh_port for rank in ranks)) if port > 0) - met,
        engine_ports=frozenset(item.port for item in containers if item.rank == 0 and item.port) | met - {0},
    )


def _http_ports(container: Container) -> Iterator[int]:
    """Yield the port of an engine, and of its service on the gateway: one below that of blue, two below of green."""
    if container.port:
        yield container.port
        yield container.port - (1 if container.slot == Slot.BLUE else 2)


def engine_findings(
    node: str, containers: Iterable[Container], open_ports: Collection[int], filtered: Collection[int] | None
) -> Iterator[Finding]:
    """Yield the engines that answer clients other than the gateway of their fleet.

    `open_ports` listen beyond loopback, `filtered` have a rule of nftables; None where the guard reported no rules.
    """
    for container in containers:
        if not container.running or container.rank or container.port not in open_ports:
            continue
        if not container.callers:
            problem = (
                f"{container.name} accepts connections from every address on port {container.port}, without keys or TLS"
            )
            step = f"sparkops stop {container.service}; then deploy it behind the gateway: sparkops deploy RECIPE"
            yield ENGINE_OPEN.at(node, problem, step)
        elif filtered is None:
            problem = f"port {container.port} of {container.name} may be open: the guard does not report its rules"
            yield FILTER_UNKNOWN.at(node, problem, "sparkops deploy RECIPE renews the guard.")
        elif container.port not in filtered:
            problem = f"port {container.port} of {container.name} is open: nftables has no rule of sparkops for it"
            yield FILTER_MISSING.at(node, problem, "docker logs sparkops-guard shows why.")


def rank_findings(node: str, containers: Iterable[Container], filtered: Collection[int] | None) -> Iterator[Finding]:
    """Yield the running ranks of several nodes whose ports are open to more than the other ranks.

    `filtered` is that of `engine_findings`. The rule of a rendezvous port holds the other ports of ranks as well.
    """
    for container in containers:
        if not container.running or not container.peers:
            continue
        if filtered is None:
            problem = f"ports between ranks of {container.name} may be open: the guard does not report its rules"
            yield FILTER_UNKNOWN.at(node, problem, "sparkops deploy RECIPE renews the guard.")
        elif container.rendezvous_port not in filtered:
            problem = f"ports between ranks of {container.name} are open: nftables has no rule of sparkops for them"
            yield FILTER_MISSING.at(node, problem, "docker logs sparkops-guard shows why.")
