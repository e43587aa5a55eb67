"""Probe the running replicas of a service: find them by their labels, and run the smoke suite on each node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkops.config.recipe import Recipe
from sparkops.config.release import Release
from sparkops.errors import ProbeFailed, StartFailed
from sparkops.names import LABEL
from sparkops.node.docker.facts import Container, parse_container
from sparkops.node.http import session
from sparkops.node.member import Member
from sparkops.serving.smoke import suite
from sparkops.serving.smoke.results import CheckVerdict, SmokeReport
from sparkops.serving.smoke.suite import Server


@dataclass(frozen=True)
class Target:
    """A running replica: its container with rank 0, and the name of its recipe."""

    container: Container
    recipe: str

    def differs(self, recipe: Recipe) -> bool:
        """Return whether the recipe has changed since."""
        return Release(recipe, self.container.inputs).id != self.container.release


def targets(member: Member, service: str) -> tuple[Target, ...]:
    """Return the running replicas of a service on a node. A rank above 0 answers no request."""
    targets = (
        Target(parse_container(member.name, inspect), inspect["Config"]["Labels"].get(f"{LABEL}recipe", ""))
        for inspect in member.engine.containers(service=service)
    )
    return tuple(target for target in targets if target.container.running and target.container.rank == 0)


def probe(
    member: Member, container: Container, recipe: Recipe, passes: int | None, report: Callable[[CheckVerdict], None]
) -> SmokeReport:
    """Run the smoke suite over one replica in use; `passes` default to the recipe. Raises Interrupted, StartFailed."""
    before = restarts(member, container.name)
    server = Server(
        open=lambda: session(member.node, container.port),
        recipe=recipe,
        restarts=lambda: restarts(member, container.name) - before,
        alone=False,
        cancel=member.node.cancel,
    )
    return suite.run(server, report, passes)


def restarts(member: Member, container: str) -> int:
    """Return how often Docker has restarted the container. Raises StartFailed when it is gone."""
    inspect = member.engine.container(container)
    if inspect is None:
        raise StartFailed(member.name, f"{container} was removed while it was probed")
    count: int = inspect["RestartCount"]
    return count


def refused(node: str, service: str, report: SmokeReport) -> ProbeFailed | None:
    """Return the error of a replica that failed the suite; None if it passed."""
    if report.ok:
        return None
    return ProbeFailed(node, report.failure, next_step=f"sparkops logs {service} --node {node}")
