"""`python -m sparkops.guard.replacing IMAGE INPUTS NODE` replaces the guard of its node by one from an image.

It runs in a container of its own, so that it ends whatever becomes of the client: with the new guard, which answers, or
with the old one, which runs again. Killed at any step, it derives the next one from the containers of its node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from sparkops.agents.container import PATIENCE_S, answered, discard
from sparkops.command import Command
from sparkops.config.inventory import NodeConfig
from sparkops.docker.commands import remove_by_force, start
from sparkops.errors import NodeError, SparkopsError, StartFailed
from sparkops.guard_client import commands
from sparkops.names import LABEL
from sparkops.nodes.connected import Member
from sparkops.nodes.docker_api import Engine
from sparkops.nodes.local import LocalNode
from sparkops.nodes.node import Node


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
        return commands.STAY_STOPPED
    return commands.STOP if container.running else commands.PUT_ASIDE


def back(container: GuardContainer | None, *, aside: bool) -> Command | None:
    """Return the next command towards the old guard, which was put aside if `aside`; None once it runs."""
    if aside and container is None:
        return commands.PUT_BACK
    if aside and container and container.new:
        return remove_by_force(commands.CONTAINER)
    if container is None or (container.policy == "always" and container.running):
        return None
    return start(commands.CONTAINER) if container.policy == "always" else commands.KEEP_RUNNING


MOST_STEPS = 10


def replace(node: Node, image: str, inputs: str, patience_s: float = PATIENCE_S) -> str:
    """Replace the guard of a node. Returns why the old one runs again, or nothing if the new one answers.

    The new one gets `patience_s` to answer. Raises SparkopsError or OSError where the old one could not be started
    again, or removed.
    """
    run = commands.run(image, inputs, node.name)
    with closing(Engine(node)) as engine:
        member = Member(node.name, NodeConfig(transport="local"), node, engine)
        try:
            _follow(member, lambda: forward(_container(member, inputs), run))
            answered(member, commands.CONTAINER, lambda: node.run(commands.READY), patience_s)
        except (SparkopsError, OSError) as error:
            _follow(
                member, lambda: back(_container(member, inputs), aside=engine.container(commands.ASIDE) is not None)
            )
            return error.problem if isinstance(error, NodeError) else str(error)
        discard(member, commands.ASIDE)
    return ""


def _follow(member: Member, following: Callable[[], Command | None]) -> None:
    """Run the command that is next until there is none. Raises the errors of Docker, StartFailed after MOST_STEPS."""
    for _ in range(MOST_STEPS):
        command = following()
        if command is None:
            return
        member.node.run(command)
    raise StartFailed(member.name, f"{commands.CONTAINER} is not as expected after {MOST_STEPS} commands")


def _container(member: Member, inputs: str) -> GuardContainer | None:
    inspect = member.engine.container(commands.CONTAINER)
    if inspect is None:
        return None
    labels = {f"{LABEL}inputs": inputs, commands.NODE_LABEL: member.name}
    new = labels.items() <= inspect["Config"]["Labels"].items()
    return GuardContainer(new, inspect["State"]["Running"], inspect["HostConfig"]["RestartPolicy"]["Name"])


def main() -> None:
    """Replace the guard, let Docker start this program no more, and exit with 1 if the old guard runs again."""
    image, inputs, name = sys.argv[1:]
    node = LocalNode(name)
    problem = replace(node, image, inputs)
    node.run(commands.REPLACED)
    sys.exit(problem or 0)


if __name__ == "__main__":
    main()
