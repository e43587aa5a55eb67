"""Bring an agent's container up to date. A program on its node replaces another version, without the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkops.errors import CommandFailed, Interrupted, NotReady, StartFailed
from sparkops.node.agents import commands
from sparkops.node.agents.container import LOG_TAIL, POLL_S, discard
from sparkops.node.docker.commands import remove, start
from sparkops.node.docker.facts import log_lines
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.node.waiting import Waiting
from sparkops.operator.build.images.build import build_on
from sparkops.operator.deploy.agents.agent import Agent

TRIES, PAUSE_S = 3, 1.0  # if two clients act at once, a retry finds the work done
PATIENCE_S = 300.0
"""How long a replacement may take: the old container stops within 20 s, the new one answers within 30 s."""


def up(member: Member, agent: Agent, report: OnEvent) -> bool:
    """Bring the container up to date. False if it was. Raises NotReady, StartFailed, Interrupted."""
    waiting = Waiting(PAUSE_S, cancel=member.node.cancel, tries=TRIES)
    return waiting.retry(lambda: _make_right(member, agent, report), lambda error: isinstance(error, CommandFailed))


def _make_right(member: Member, agent: Agent, report: OnEvent) -> bool:
    waited = finish(member, agent, report)
    container = member.engine.container(agent.container)
    aside = member.engine.container(agent.version.aside)
    if container is None and aside is None:
        image = build_on(member, agent.order, report).image
        report(Event(member.name, f"starting {agent.container}"))
        member.node.run(agent.version.run(image))
    elif aside is not None or not _matches(container, agent):
        _replace(member, agent, container, report)
    elif not container or not container["State"]["Running"] or container["State"]["Restarting"]:
        report(Event(member.name, f"starting {agent.container}"))
        member.node.run(start(agent.container))
    else:
        return waited
    return True


def _matches(container: Mapping[str, Any] | None, agent: Agent) -> bool:
    return container is not None and agent.labels.items() <= container["Config"]["Labels"].items()


def _replace(member: Member, agent: Agent, container: Mapping[str, Any] | None, report: OnEvent) -> None:
    """Replace the container by this version, also where the program that replaced it was removed before its end."""
    image = build_on(member, agent.order, report).image
    program = image if agent.program is agent.order else build_on(member, agent.program, report).image
    _require_readable(member, agent, image)
    report(Event(member.name, f"replacing {agent.container} with another version: {agent.costs}"))
    if container is not None and not _matches(container, agent):  # otherwise the one that was put aside is the way back
        discard(member, agent.version.aside, agent.version.stop_s)
    member.node.run(commands.replace(program, agent.container, image, *agent.version.arguments))
    problem = _outcome(member, agent)
    if problem is None:
        up(member, agent, report)
    elif problem:
        why = f"the new {agent.version.name} does not answer; the old one runs again: {problem}"
        raise StartFailed(member.name, why, next_step="Correct the cause, and repeat the command.")


def _require_readable(member: Member, agent: Agent, image: str) -> None:
    """Raise NotReady unless a new image can read the files of its predecessor."""
    if agent.check is None:
        return
    try:
        member.node.run(agent.check(image))
    except CommandFailed as failed:
        why, _, step = failed.completed.last_lines.rpartition("\n  next: ")
        problem = f"{agent.version.name} not replaced: the new version cannot read its files: {why or step}"
        usual = "Use the version of sparkops that last deployed."
        raise NotReady(member.name, problem, next_step=step if why else usual) from failed


def finish(member: Member, agent: Agent, report: OnEvent) -> bool:
    """Wait for the replacement that another client has started, if there is one. Raises StartFailed, Interrupted."""
    replacement = agent.version.replacement
    container = member.engine.container(replacement)
    if container is None:
        return False
    if container["State"]["Status"] == "created":  # its client ended before the start, so nothing has changed
        member.node.run(remove(replacement))
        return False
    report(Event(member.name, f"waiting for {replacement}, which another client has started"))
    _outcome(member, agent)
    return True


def _outcome(member: Member, agent: Agent) -> str | None:
    """Wait until a replacement has ended and remove its container. Returns why the old container runs again.

    Empty: the new one answers; None: another client has removed the container. Raises StartFailed after PATIENCE_S,
    and Interrupted: the replacement continues.
    """
    name = agent.version.replacement
    interrupted = Interrupted(f"{member.name}: the {agent.version.name} is being replaced; this continues on the node")
    waiting = Waiting(POLL_S, PATIENCE_S, member.node.cancel, interrupted=interrupted)
    container = waiting.poll(lambda: member.engine.container(name), _has_ended)
    if container is None:
        return None
    log = "\n".join(line for _, line in log_lines(member.engine.log(name, tail=LOG_TAIL)))
    if not _has_ended(container):
        problem = f"{name} has not ended within {PATIENCE_S:g} s\n{log}"
        raise StartFailed(member.name, problem, next_step=f"docker logs {name}, on {member.name}")
    member.node.run(remove(name))
    return (log or "no output") if container["State"]["ExitCode"] else ""


def _has_ended(container: Mapping[str, Any] | None) -> bool:
    """Return whether a replacement is removed, or has ended and Docker will not restart it."""
    if container is None:
        return True
    return not container["State"]["Running"] and container["HostConfig"]["RestartPolicy"]["Name"] == "no"
