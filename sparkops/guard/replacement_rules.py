"""The steps that replace a guard, each derived from the containers of its node. After any crash they continue. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparkops.command import Command
from sparkops.docker.commands import remove_by_force, start
from sparkops.guard_client import commands


@dataclass(frozen=True)
class GuardContainer:
    """The container that has the guard's name."""

    new: bool
    """Whether it is of the version that replaces the other one."""
    running: bool
    policy: str
    """Docker's restart policy."""


def forward(container: GuardContainer | None, run: Command) -> Command | None:
    """Return the next command towards the new guard, which `run` starts; None once it runs."""
    if container is None:
        return run
    if container.new:
        return None if container.running else start(commands.CONTAINER)
    if container.policy != "no":
        return commands.stay_stopped()
    return commands.stop() if container.running else commands.put_aside()


def back(container: GuardContainer | None, *, aside: bool) -> Command | None:
    """Return the next command towards the old guard, which was put aside if `aside`; None once it runs."""
    if aside and container is None:
        return commands.put_back()
    if aside and container and container.new:
        return remove_by_force(commands.CONTAINER)
    if container is None or (container.policy == "always" and container.running):
        return None
    return start(commands.CONTAINER) if container.policy == "always" else commands.keep_running()
