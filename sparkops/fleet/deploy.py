"""Carry out a deploy plan: every replica at once, each step looked at before the next."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkops.errors import CommandFailed, ProbeFailed, StartFailed
from sparkops.facts.docker import Container
from sparkops.fleet import hands, probing, room, watch
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.hands import Hand
from sparkops.fleet.keep import Keep, put_away
from sparkops.fleet.observe import containers
from sparkops.fleet.progress import Event, Tell
from sparkops.plan.deploy import Act, Plan, Replica, Step
from sparkops.plan.smoke import Report
from sparkops.release import Rank


@dataclass(frozen=True)
class Deployed:
    """One replica that answers. Times in seconds since the deploy began there; stages since the container's start."""

    rank: Rank
    changed: bool
    took_s: float = 0.0
    report: Report | None = None
    stages: tuple[tuple[str, float], ...] = ()


def deploy(connected: Connected, plan: Plan, keep: Keep, tell: Tell) -> dict[str, Deployed]:
    """Bring up every replica of the plan. Raises StartFailed, ProbeFailed or CommandFailed, for all nodes at once.

    A replica that failed is stopped. Its container and log stay on the node, and a copy is saved here.
    """
    replicas = {replica.rank.node: replica for replica in plan.replicas}
    return connected.all(lambda member: _bring_up(member, replicas[member.name], keep, tell))


def _bring_up(member: Member, replica: Replica, keep: Keep, tell: Tell) -> Deployed:
    began = time.monotonic()
    done = Deployed(replica.rank, replica.changes)
    try:
        for step in replica.steps:
            done = _take(member, step, done, keep, tell)
    except (StartFailed, ProbeFailed, CommandFailed) as error:
        tell(Event(member.name, f"failed: {error.problem.splitlines()[0]}"))  # other nodes may still take long
        if replica.changes:
            put_away(member, replica.rank.container, keep, error)
        raise
    return replace(done, took_s=time.monotonic() - began)


def _take(member: Member, step: Step, done: Deployed, keep: Keep, tell: Tell) -> Deployed:
    if step.act is Act.WATCH:
        seen = watch.until_healthy(member, watch.Start.of(done.rank), tell, keep)
        return replace(done, stages=tuple((str(stage), at_s) for stage, at_s in seen.reached))
    if step.act is Act.PROBE:
        where = (member, done.rank.container, done.rank.port)
        return replace(done, report=probing.prove(*where, done.rank.release.recipe, keep, tell))
    room.take(Hand(member, member.node.run, tell), [step], done.rank.release.recipe)
    return done


def stop(connected: Connected, service: str, tell: Tell) -> dict[str, tuple[str, ...]]:
    """Stop every running container of a service, and see by inspect that it has ended; of a pair rank 0 first.

    Returns the names of the stopped containers for each node. Raises NodeError where one still runs.
    """
    found = connected.all(lambda member: [each for each in containers(member, service=service) if each.running])
    for number in sorted({each.rank for running in found.values() for each in running}):
        connected.all(lambda member, rank=number: _stop(member, found[member.name], rank, tell))  # type: ignore[misc]
    return {name: tuple(each.name for each in running) for name, running in found.items()}


def _stop(member: Member, running: Sequence[Container], rank: int, tell: Tell) -> None:
    hand = Hand(member, member.node.run, tell)
    for each in running:
        if each.rank == rank:
            hands.stop_engine(hand, each.name, each.grace_s)
