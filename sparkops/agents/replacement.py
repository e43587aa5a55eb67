"""Replace a guard with another version, by a program on its node that does not need the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkops.agents.agent import Agent, up
from sparkops.agents.container import LOG_TAIL, POLL_S, answered, discard
from sparkops.docker.commands import remove
from sparkops.docker.facts import log_lines
from sparkops.errors import CommandFailed, Interrupted, NotReady, StartFailed
from sparkops.guard_client import commands
from sparkops.images.build import build_on
from sparkops.names import LABEL
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event, OnEvent
from sparkops.nodes.waiting import Waiting

PATIENCE_S = 300.0
"""How long a replacement may take: the old guard stops within 10 s, the new one answers within 30 s."""


def replace(member: Member, agent: Agent, report: OnEvent) -> None:
    """Replace the guard of a node. Raises NotReady if the new one cannot read the journals, StartFailed."""
    if _finished(member, report):
        up(member, agent, report)
        return
    image = build_on(member, agent.order, report).image
    _require_readable(member, image)
    report(Event(member.name, f"replacing {agent.container} with another version: {agent.costs}"))
    discard(member, commands.ASIDE)
    member.node.run(commands.replace(image, agent.labels[f"{LABEL}inputs"], member.name))
    problem = _outcome(member)
    if problem is None:
        up(member, agent, report)
    elif problem:
        raise StartFailed(member.name, f"the new guard does not answer; the old one runs again: {problem}")


def install(member: Member, agent: Agent, report: OnEvent) -> None:
    """Start a guard on a node without one. Remove a guard that was put aside once the new one answers."""
    if _finished(member, report):
        up(member, agent, report)
        return
    image = build_on(member, agent.order, report).image
    if aside := member.engine.container(commands.ASIDE):
        _require_readable(member, image)
    report(Event(member.name, f"starting {agent.container}"))
    member.node.run(agent.run(image))
    answered(member, commands.CONTAINER, lambda: member.node.run(commands.READY))
    if aside:
        discard(member, commands.ASIDE)


def _require_readable(member: Member, image: str) -> None:
    """Raise NotReady unless a new guard's image can read every journal of its node."""
    try:
        member.node.run(commands.check(image))
    except CommandFailed as failed:
        problem = f"guard not replaced: the new version cannot read its files: {failed.completed.last_lines}"
        raise NotReady(member.name, problem, next_step="Use the version of sparkops that last deployed.") from failed


def _finished(member: Member, report: OnEvent) -> bool:
    """Wait for the replacement that another client has started, if there is one. Raises StartFailed, Interrupted."""
    container = member.engine.container(commands.REPLACEMENT)
    if container is None:
        return False
    if container["State"]["Status"] == "created":  # its client ended before the start, so nothing has changed
        member.node.run(remove(commands.REPLACEMENT))
        return False
    report(Event(member.name, f"waiting for {commands.REPLACEMENT}, which another client has started"))
    _outcome(member)
    return True


def _outcome(member: Member) -> str | None:
    """Wait until a replacement has ended and remove its container. Returns why the old guard runs again.

    Empty: the new one answers; None: another client has removed the container. Raises StartFailed after PATIENCE_S,
    and Interrupted: the replacement continues.
    """
    interrupted = Interrupted(f"{member.name}: the guard is being replaced; this continues on the node")
    waiting = Waiting(POLL_S, PATIENCE_S, member.node.cancel, interrupted=interrupted)
    container = waiting.poll(lambda: member.engine.container(commands.REPLACEMENT), _has_ended)
    if container is None:
        return None
    log = "\n".join(line for _, line in log_lines(member.engine.log(commands.REPLACEMENT, tail=LOG_TAIL)))
    if not _has_ended(container):
        step = f"docker logs {commands.REPLACEMENT}, on {member.name}"
        problem = f"{commands.REPLACEMENT} has not ended within {PATIENCE_S:g} s\n{log}"
        raise StartFailed(member.name, problem, next_step=step)
    member.node.run(remove(commands.REPLACEMENT))
    return (log or "no output") if container["State"]["ExitCode"] else ""


def _has_ended(container: Mapping[str, Any] | None) -> bool:
    """Return whether a replacement is removed, or has ended and Docker will not restart it."""
    if container is None:
        return True
    return not container["State"]["Running"] and container["HostConfig"]["RestartPolicy"]["Name"] == "no"
