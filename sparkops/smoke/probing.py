"""Probe the running replicas of a service: find them by their labels, and run the smoke suite on each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.config.recipe import Recipe
from sparkops.docker.facts import Container, parse_container
from sparkops.errors import ProbeFailed, StartFailed
from sparkops.nodes.connected import Member
from sparkops.nodes.http import session
from sparkops.release import LABEL, Release
from sparkops.smoke import suite
from sparkops.smoke.results import CheckVerdict, SmokeReport
from sparkops.smoke.suite import Server


@dataclass(frozen=True)
class Target:
    """A running replica: its container with rank 0, and the name of the recipe that it was made from."""

    container: Container
    recipe: str

    def differs(self, recipe: Recipe) -> bool:
        """Whether it was made from a recipe that reads otherwise now."""
        return Release(recipe, self.container.inputs).id != self.container.release


def targets(member: Member, service: str) -> tuple[Target, ...]:
    """The running replicas of a service on a node. A rank above 0 answers no request."""
    targets = (_target(member, inspect) for inspect in member.engine.containers(service=service))
    return tuple(target for target in targets if target.container.running and target.container.rank == 0)


def _target(member: Member, inspect: Mapping[str, Any]) -> Target:
    labels = inspect["Config"]["Labels"]
    return Target(parse_container(member.name, inspect), labels.get(f"{LABEL}recipe", ""))


@dataclass(frozen=True)
class Probing:
    """How a replica is probed: see Server. `passes` left out is what the recipe says."""

    recipe: Recipe
    passes: int | None = None
    alone: bool = True
    api_key: str | None = None
    stall_s: float | None = None


def probe(
    member: Member, container: str, port: int, probing: Probing, tell: Callable[[CheckVerdict], None] = suite.ignore
) -> SmokeReport:
    """Run the smoke suite over one replica through the node's connection. Raises Interrupted, StartFailed."""
    before = restarts(member, container)
    server = Server(
        open=lambda: session(member.node, port),
        recipe=probing.recipe,
        restarts=lambda: restarts(member, container) - before,
        api_key=probing.api_key,
        alone=probing.alone,
        cancel=member.node.cancel,
        stall_s=probing.stall_s,
    )
    return suite.run(server, tell, probing.passes)


def restarts(member: Member, container: str) -> int:
    """How often Docker has restarted the container. Raises StartFailed when it is gone."""
    inspect = member.engine.container(container)
    if inspect is None:
        raise StartFailed(member.name, f"{container} was removed while it was probed")
    count: int = inspect["RestartCount"]
    return count


def refused(node: str, service: str, report: SmokeReport) -> ProbeFailed | None:
    """The error of a replica that failed the suite; None if it passed."""
    if report.ok:
        return None
    return ProbeFailed(node, report.failure, next_step=f"What the engine logged: sparkops logs {service} --node {node}")
