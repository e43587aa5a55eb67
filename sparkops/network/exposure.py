"""Which ports of engines are open to whom, and which of them are open to more than they should be. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from sparkops.docker.facts import Container
from sparkops.network.finding import Finding, Severity
from sparkops.network.firewall import Firewall
from sparkops.release import Slot


def restricted(containers: Iterable[Container]) -> Mapping[int, tuple[str, ...]]:
    """Return the addresses that may connect to each port which is not open to all.

    A port belongs to the container that runs, else to the first one: Docker lists the newest first.
    """
    owners: dict[int, Container] = {}
    for container in sorted(containers, key=lambda container: not container.running):
        if container.rank == 0 and container.port:
            owners.setdefault(container.port, container)
    return {port: owner.callers for port, owner in owners.items() if owner.callers is not None}


def firewall(containers: Collection[Container], gateway: Collection[str] = ()) -> Firewall:
    """Return the firewall for the containers of a node, running or not: the next start must find it closed.

    Where rank 0 of a replica meets the others, nothing is open for another service, unless that listens there now.
    `gateway`: addresses of the gateway's node, if it is another one. It may have moved since an engine was created.
    """
    ranks = [container for container in containers if container.peers]
    http = (port for container in containers for port in _http_ports(container))
    served = {container.port for container in containers if container.running and container.rank == 0}
    met = {rank.meeting_port for rank in ranks if rank.rank == 0} - served
    return Firewall(
        callers={port: (*named, *gateway) if named else named for port, named in restricted(containers).items()},
        peers=frozenset(peer for rank in ranks for peer in rank.peers),
        meeting_ports=frozenset(rank.meeting_port for rank in ranks if rank.meeting_port),
        open_ports=frozenset(port for port in (*http, *(rank.ssh_port for rank in ranks)) if port > 0) - met,
    )


def _http_ports(container: Container) -> Iterator[int]:
    """Yield the port of an engine, and of its service on the gateway: one below that of blue, two below of green."""
    if container.port:
        yield container.port
        yield container.port - (1 if container.slot == Slot.BLUE else 2)


def findings(
    node: str, containers: Iterable[Container], open_ports: Collection[int], filtered: Collection[int] | None
) -> Iterator[Finding]:
    """Yield the engines that answer others than the gateway of their fleet.

    `open_ports` listen beyond loopback, `filtered` have a rule of nftables; None where the guard reported no rules.
    """
    for container in containers:
        if not container.running or container.rank or container.port not in open_ports:
            continue
        if not container.callers:
            problem = f"{container.name} answers every address on port {container.port}, without keys or TLS"
            step = f"sparkops stop {container.service}; then deploy it behind the gateway: sparkops deploy RECIPE"
            yield _warning("ENGINE_OPEN", node, problem, step)
        elif filtered is None:
            problem = f"port {container.port} of {container.name} may be open: the guard does not report its rules"
            yield _warning("FILTER_UNKNOWN", node, problem, "sparkops deploy RECIPE --blue-green renews the guard.")
        elif container.port not in filtered:
            problem = f"port {container.port} of {container.name} is open: nftables has no rule of sparkops for it"
            yield _warning("FILTER_MISSING", node, problem, "docker logs sparkops-guard shows why.")


def rank_findings(node: str, containers: Iterable[Container], filtered: Collection[int] | None) -> Iterator[Finding]:
    """Yield the running ranks of several nodes whose ports are open to more than the other ranks.

    `filtered` is that of `findings`. The rule of a meeting port holds the other ports of ranks as well.
    """
    for container in containers:
        if not container.running or not container.peers:
            continue
        if filtered is None:
            problem = f"ports between ranks of {container.name} may be open: the guard does not report its rules"
            yield _warning("FILTER_UNKNOWN", node, problem, "sparkops deploy RECIPE renews the guard.")
        elif container.meeting_port not in filtered:
            problem = f"ports between ranks of {container.name} are open: nftables has no rule of sparkops for them"
            yield _warning("FILTER_MISSING", node, problem, "docker logs sparkops-guard shows why.")


def _warning(code: str, node: str, problem: str, step: str) -> Finding:
    return Finding(code=code, node=node, problem=problem, next_step=step, severity=Severity.WARNING)
