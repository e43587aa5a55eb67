"""Carry out a deploy plan: every replica at once, each step looked at before the next."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from sparkops.commands import docker
from sparkops.errors import CommandFailed, NodeError, ProbeFailed, StartFailed
from sparkops.fleet import probing, watch
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.keep import Keep, put_away
from sparkops.fleet.observe import containers
from sparkops.fleet.probing import Probing
from sparkops.fleet.progress import Event, Tell
from sparkops.plan.deploy import Act, Plan, Replica, Step
from sparkops.plan.smoke import Report, Verdict
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
        if replica.changes:
            put_away(member, replica.rank.container, keep, error)
        raise
    return replace(done, took_s=time.monotonic() - began)


def _take(member: Member, step: Step, done: Deployed, keep: Keep, tell: Tell) -> Deployed:
    if step.act is Act.WATCH:
        seen = watch.until_healthy(member, watch.Start.of(done.rank), tell)
        return replace(done, stages=tuple((str(stage), at_s) for stage, at_s in seen.reached))
    if step.act is Act.PROBE:
        return replace(done, report=_probe(member, done.rank, keep, tell))
    if step.command is not None:
        tell(Event(member.name, step.title))
        member.node.run(step.command)
    return done


def _probe(member: Member, rank: Rank, keep: Keep, tell: Tell) -> Report:
    """All that is asked and answered is saved when it fails: the transcript is the evidence."""

    def show(verdict: Verdict) -> None:
        tell(Event(member.name, str(verdict), lasting=not verdict.ok))

    report = probing.probe(member, rank.container, rank.port, Probing(rank.release.recipe), show)
    if error := probing.refused(member.name, rank.release.service, report):
        keep.transcript(member.name, report)
        raise error
    tell(Event(member.name, f"smoke suite passed {report.passes} times in {report.took_s:.1f} s"))
    return report


def stop(connected: Connected, service: str, tell: Tell) -> dict[str, tuple[str, ...]]:
    """Stop every running container of a service, and see by inspect that it has ended.

    Returns the names of the stopped containers for each node. Raises NodeError where one still runs.
    """
    return connected.all(lambda member: _stop(member, service, tell))


def _stop(member: Member, service: str, tell: Tell) -> tuple[str, ...]:
    running = [each for each in containers(member, service=service) if each.running]
    for each in running:
        tell(Event(member.name, f"stopping {each.name}"))
        with suppress(CommandFailed):  # what counts is what inspect says afterwards
            member.node.run(docker.stay_stopped(each.name))
            member.node.run(docker.stop(each.name, each.grace_s))
    alive = [each.name for each in containers(member, service=service) if each.running]
    if alive:
        raise NodeError(member.name, f"still running after stop: {', '.join(alive)}", next_step="sparkops status")
    return tuple(each.name for each in running)
