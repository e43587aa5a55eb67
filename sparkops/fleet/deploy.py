"""Carry out a deploy plan: every replica at once, each step looked at before the next."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sparkops.commands import docker
from sparkops.errors import CommandFailed, NodeError, ProbeFailed, SparkopsError, StartFailed
from sparkops.fleet import watch
from sparkops.fleet.connected import Connected, Member
from sparkops.fleet.observe import containers
from sparkops.fleet.progress import Event, Tell
from sparkops.nodes.http import session
from sparkops.plan.deploy import Act, Plan, Replica, Step
from sparkops.probes import openai
from sparkops.release import Rank

FAILED_GRACE_S = 10  # a server that never answered has nothing to finish


@dataclass(frozen=True)
class Deployed:
    """One replica that answers. Times in seconds since the deploy began there; stages since the container's start."""

    rank: Rank
    changed: bool
    answer: str
    took_s: float
    stages: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Keep:
    """Where what is left of a failed start goes: a directory for each node."""

    directory: Callable[[str], Path]


def deploy(connected: Connected, plan: Plan, keep: Keep, tell: Tell) -> dict[str, Deployed]:
    """Bring up every replica of the plan. Raises StartFailed, ProbeFailed or CommandFailed, for all nodes at once.

    A replica that failed is stopped. Its container and log stay on the node, and a copy is saved here.
    """
    replicas = {replica.rank.node: replica for replica in plan.replicas}
    return connected.all(lambda member: _bring_up(member, replicas[member.name], keep, tell))


def _bring_up(member: Member, replica: Replica, keep: Keep, tell: Tell) -> Deployed:
    began = time.monotonic()
    done = Deployed(replica.rank, replica.changes, "", 0.0)
    try:
        for step in replica.steps:
            done = _take(member, step, done, tell)
    except (StartFailed, ProbeFailed, CommandFailed) as error:
        if replica.changes:
            _put_away(member, replica.rank, keep, error)
        raise
    return replace(done, took_s=time.monotonic() - began)


def _take(member: Member, step: Step, done: Deployed, tell: Tell) -> Deployed:
    if step.act is Act.WATCH:
        seen = watch.until_healthy(member, done.rank, tell)
        return replace(done, stages=tuple((str(stage), at_s) for stage, at_s in seen.reached))
    if step.act is Act.ASK:
        return replace(done, answer=_ask(member, done.rank, tell))
    if step.command is not None:
        tell(Event(member.name, step.title))
        member.node.run(step.command)
    return done


def _ask(member: Member, rank: Rank, tell: Tell) -> str:
    question = rank.release.recipe.probe.question
    tell(Event(member.name, f"asking: {question.ask}"))
    with session(member.node, rank.port) as asking:
        answer = openai.ask(asking, rank.release.service, question)
    if not answer.ok:
        step = f"What the engine logged: sparkops logs {rank.release.service} --node {member.name}"
        raise ProbeFailed(member.name, answer.problem, next_step=step)
    tell(Event(member.name, f"answered in {answer.took_s:.1f} s: {answer.text}"))
    return answer.text


def _put_away(member: Member, rank: Rank, keep: Keep, error: NodeError) -> None:
    """Save what a person needs to understand a failed start, then stop it. The first error stays the error."""
    try:
        saved = _save(member, rank, keep.directory(member.name))
        error.add_note(f"saved: {saved}")
        member.node.run(docker.stop(rank.container, FAILED_GRACE_S))
        error.add_note(f"{rank.container} is stopped, and stays on the node with its log")
    except (SparkopsError, OSError) as second:
        error.add_note(f"and then, while putting it away: {second}")


def _save(member: Member, rank: Rank, directory: Path) -> Path:
    inspect = member.engine.container(rank.container)
    directory.mkdir(parents=True, exist_ok=True)
    if inspect is not None:
        (directory / "log.txt").write_text(member.engine.log(rank.container))
        (directory / "inspect.json").write_text(json.dumps(inspect, indent=2))
    return directory


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
