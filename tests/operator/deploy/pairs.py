"""A service of pairs: n1 and n2 hold the old release, and every node says that plain TCP joins it to the others."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any

from sparkops.config.fabric import FabricRules as Rules
from sparkops.config.release import Rank, Release
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.operator.deploy import plan as swap
from sparkops.operator.deploy.plan import DeployOptions, Plan
from sparkops.operator.deploy.preconditions import Current, Observed
from sparkops.operator.fleet.network.facts import Interface, NodeFabric
from tests.examples import container, release
from tests.operator.deploy.swaps import at, on

TCP = Rules(allow_tcp=True)
SERVE = {"tensor_parallel": 2, "executor": "mp"}
NEW = release(memory={"claim_gib": 40.0}, serve=SERVE)
OLD = release(memory={"claim_gib": 40.0}, serve=SERVE, model={"revision": "old"})
ALONE = release(memory={"claim_gib": 40.0})
"""The same service on a single node."""


def ranks(of: Release, slot: Slot, *names: str) -> tuple[Rank, ...]:
    """Its ranks on these nodes, in order."""
    return tuple(Rank(of, slot, name, index, "g1") for index, name in enumerate(names))


def runs(rank: Rank, **changes: Any) -> Container:
    """The running container of a rank."""
    several = {"ranks": rank.size, "generation": rank.generation} if rank.size > 1 else {}
    return container(rank, **{"claim_gib": 40.0, "restart_policy": "no", **several, **changes})


def net(address: str) -> NodeFabric:
    """What a node without RDMA says, with one interface."""
    wire = Interface("eth0", up=True, mtu=1500, speed_mbit_s=10000, addresses=(IPv4Interface(address),))
    return NodeFabric({"eth0": wire}, (), frozenset(), 8192, frozenset({"ping"}), "", "6.12")


def joined(number: int, free: float, *containers: Container, **host: Any) -> Observed:
    """Node n`number` with so many GiB available, in one network with the others."""
    return replace(on(free, *containers, **host), fabric=net(f"10.0.0.{number}/24"))


UNREAD = "ip exited with code 127"
BLUE = ranks(OLD, Slot.BLUE, "n1", "n2")
SERVING = Current(at(OLD, Slot.BLUE, "n1", "n2"), Slot.BLUE)


def plan(
    free: dict[str, float],
    current: Current = SERVING,
    options: DeployOptions | None = None,
    of: Release = NEW,
    *,
    rules: Rules = TCP,
    without: frozenset[str] = frozenset(),
) -> Plan:
    """The plan for nodes with so much free; the ranks of what serves run where `current` says."""
    source = current.source
    places = {rank.node: rank.container for rank in source.ranks} if source else {}
    own = {rank.container: rank for rank in (*BLUE, Rank(ALONE, Slot.BLUE, "n1"))}
    nodes: dict[str, Observed] = {}
    for name, gib in free.items():
        here = [runs(replace(own[places[name]], node=name))] if name in places else []
        observed = joined(int(name[1:]), gib, *here)
        nodes[name] = replace(observed, fabric=None, fabric_unknown=UNREAD) if name in without else observed
    return swap.plan(of, nodes, current, options or DeployOptions(), rules)
