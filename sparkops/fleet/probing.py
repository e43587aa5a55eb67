"""Probe the running replicas of a service: find them by their labels, and run the smoke suite on each node."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.config.recipe import Recipe
from sparkops.errors import ProbeFailed, StartFailed
from sparkops.facts import docker as docker_facts
from sparkops.facts.docker import Container
from sparkops.fleet import smoke
from sparkops.fleet.connected import Member
from sparkops.fleet.keep import Keep
from sparkops.fleet.progress import Event, Tell
from sparkops.fleet.smoke import Server
from sparkops.nodes.http import session
from sparkops.plan.smoke import Report, Verdict
from sparkops.release import LABEL, Release


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
    found = (_target(member, inspect) for inspect in member.engine.containers(service=service))
    return tuple(each for each in found if each.container.running and each.container.rank == 0)


def _target(member: Member, inspect: Mapping[str, Any]) -> Target:
    labels = inspect["Config"]["Labels"]
    return Target(docker_facts.parse(member.name, inspect), labels.get(f"{LABEL}recipe", ""))


@dataclass(frozen=True)
class Probing:
    """How a replica is probed: see Server. `passes` left out is what the recipe says."""

    recipe: Recipe
    passes: int | None = None
    alone: bool = True
    api_key: str | None = None
    stall_s: float | None = None


def probe(
    member: Member, container: str, port: int, probing: Probing, tell: Callable[[Verdict], None] = smoke.ignore
) -> Report:
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
    return smoke.run(server, tell, probing.passes)


def prove(member: Member, container: str, port: int, recipe: Recipe, keep: Keep, tell: Tell) -> Report:
    """Let a replica prove itself as often as its recipe says, with all that is asked and answered noted for a failure.

    Raises ProbeFailed, Interrupted, StartFailed.
    """

    def show(verdict: Verdict) -> None:
        tell(Event(member.name, str(verdict), lasting=not verdict.ok))

    report = probe(member, container, port, Probing(recipe), show)
    keep.note(member.name, "probe.json", json.dumps(report.as_json(), indent=2))
    if error := refused(member.name, recipe.service, report):
        raise error
    tell(Event(member.name, f"smoke suite passed {report.passes} times in {report.took_s:.1f} s"))
    return report


def restarts(member: Member, container: str) -> int:
    """How often Docker has restarted the container. Raises StartFailed when it is gone."""
    inspect = member.engine.container(container)
    if inspect is None:
        raise StartFailed(member.name, f"{container} was removed while it was probed")
    count: int = inspect["RestartCount"]
    return count


def refused(node: str, service: str, report: Report) -> ProbeFailed | None:
    """The error of a replica that failed the suite; None if it passed."""
    if report.ok:
        return None
    return ProbeFailed(node, report.failure, next_step=f"What the engine logged: sparkops logs {service} --node {node}")
