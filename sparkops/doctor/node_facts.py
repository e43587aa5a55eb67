"""The facts that doctor reads from one node. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkops.config.inventory import NodeConfig
from sparkops.docker.facts import Container
from sparkops.doctor.machine import MachineFacts
from sparkops.errors import NodeError
from sparkops.network.facts import NodeFabric
from sparkops.network.finding import Finding, Severity
from sparkops.nodes.host import HostFacts
from sparkops.weights.checkpoint import ModelDirectory


@dataclass(frozen=True)
class NodeFacts:
    """Facts of one node. `skew_s`: seconds that its clock is ahead of this machine's.

    `containers` are ranks of services, behind the `gateway` if the fleet has one. `filtered`: the ports that nftables
    closes; None if the guard did not report them. `agents`: Docker's state of guard and gateway, by container name.
    """

    name: str
    config: NodeConfig
    host: HostFacts
    machine: MachineFacts
    fabric: NodeFabric
    docker: str
    skew_s: float
    containers: tuple[Container, ...] = ()
    filtered: frozenset[int] | None = None
    gateway: bool = False
    agents: Mapping[str, str] = field(default_factory=dict)
    weights: ModelDirectory | NodeError | None = None


def warning(code: str, node: str, problem: str, step: str, *, fixable: bool = False) -> Finding:
    """Return a finding that stops no deploy."""
    severity = Severity.WARNING
    return Finding(code=code, node=node, problem=problem, next_step=step, severity=severity, fixable=fixable)
