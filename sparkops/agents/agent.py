"""Start or replace the container of an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.docker import commands
from sparkops.errors import CommandFailed
from sparkops.images.build import BuildOrder
from sparkops.nodes.connected import Member
from sparkops.nodes.progress import Event, OnEvent
from sparkops.nodes.waiting import Waiting

TRIES, PAUSE_S = 3, 1.0  # if two clients act at once, a retry finds the work done


@dataclass(frozen=True)
class Agent:
    """The container of an agent. It is up to date if it runs and has `labels`."""

    container: str
    order: BuildOrder
    labels: Mapping[str, str]
    run: Callable[[str], Command]
    install: Callable[[Member, Agent, OnEvent], None]
    """Starts the container on a node without one."""
    replace: Callable[[Member, Agent, OnEvent], None]
    """Replaces another version."""
    costs: str
    """Effect of a replacement on clients."""


def up(member: Member, agent: Agent, report: OnEvent) -> bool:
    """Bring the container up to date. False if it was."""
    waiting = Waiting(PAUSE_S, cancel=member.node.cancel, tries=TRIES)
    return waiting.retry(lambda: _make_right(member, agent, report), lambda error: isinstance(error, CommandFailed))


def _make_right(member: Member, agent: Agent, report: OnEvent) -> bool:
    container = member.engine.container(agent.container)
    if container is not None and agent.labels.items() <= container["Config"]["Labels"].items():
        if container["State"]["Running"] and not container["State"]["Restarting"]:
            return False
        report(Event(member.name, f"starting {agent.container}"))
        member.node.run(commands.start(agent.container))
        return True
    (agent.install if container is None else agent.replace)(member, agent, report)
    return True
