"""Read and change the cordon of a node at its guard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparkops.deploy.operation import Operation
from sparkops.errors import NotReady, SparkopsError
from sparkops.guard_client import leases
from sparkops.guard_client.cordon import Cordon
from sparkops.guard_client.leader import connect_guard
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event


def read(operation: Operation, node: str) -> Cordon:
    """Return the cordon of a node. Raises NotReady where no guard keeps one, and errors of nodes."""
    member = operation.connected.member(node)
    if not leases.guarded(member):
        step = "docker start sparkops-guard, on the node; before its first deploy a node needs no cordon"
        raise NotReady(node, "no guard runs on it, which keeps the cordon", next_step=step)
    if (kept := leases.kept_cordon(member)) is None:
        step = "The next deploy replaces it: sparkops deploy RECIPE"
        raise NotReady(node, "its guard is of an earlier version, without cordons", next_step=step)
    return kept


def change(operation: Operation, node: str, make: Callable[[Cordon], Cordon]) -> Cordon:
    """Change the cordon of a node and return it. Raises Busy while a swap may still start an engine there.

    Raises what `read` raises, too.
    """

    def attempt() -> Cordon:
        was = read(operation, node)
        to = make(was)
        if to != was:
            with connect_guard(operation.connected.member(node)) as opened:
                opened.set_cordon(was, to)
        return to

    return operation.until_free(attempt)


def drop_elsewhere(operation: Operation, node: str, service: str) -> None:
    """Drop a service that is back on `node` from what drains have taken from other nodes: it was there only meanwhile.

    A node that cannot be read keeps it, and its return moves the service: that is reported.
    """

    def drop(member: Member) -> None:
        if member.name != node and service in leases.cordon_of(member).displaced:
            change(operation, member.name, partial(Cordon.restored, service=service))

    for name, outcome in operation.connected.on_each(drop).items():
        if isinstance(outcome, SparkopsError):
            operation.report(Event(name, f"may still have {service} as taken from it: {outcome}"))
