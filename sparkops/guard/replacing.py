"""`python -m sparkops.guard.replacing IMAGE AGENT NODE ARGUMENT...` replaces guard or gateway of its node.

It runs in a container of its own, so that it ends whatever becomes of the client: with the new version, which answers,
or with the old one, which runs again. Killed at any step, it derives the next one from the containers of its node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.errors import NodeError, SparkopsError, StartFailed
from sparkops.gateway.gateway_version import gateway_version
from sparkops.names import GUARD
from sparkops.node.agents.commands import SOCKET
from sparkops.node.agents.container import PATIENCE_S, answered, discard
from sparkops.node.agents.replaceable import Replaceable, guard_version
from sparkops.node.docker.commands import remove_by_force, rename, set_restart, start, stop
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.node.node import Node
from sparkops.node.waiting import Waiting


@dataclass(frozen=True)
class NamedContainer:
    """The container that has the agent's name."""

    new: bool
    """Whether it is of the version that replaces the other one."""
    running: bool
    policy: str
    """Docker's restart policy."""


def forward(agent: Replaceable, image: str, container: NamedContainer | None) -> Command | None:
    """Return the next command towards the new container; None once it runs.

    The old one loses its restart policy first: two versions must not start at the next boot.
    """
    if container is None:
        return agent.run(image)
    if container.new:
        return None if container.running else start(agent.container)
    if container.policy != "no":
        return set_restart(agent.container, "no")
    if container.running and not agent.overlaps:
        return stop(agent.container, agent.stop_s)
    return rename(agent.container, agent.aside)


def back(agent: Replaceable, container: NamedContainer | None, *, aside: bool) -> Command | None:
    """Return the next command towards the old container, which was put aside if `aside`; None once it runs.

    It runs before it has its restart policy again, which Docker does not set on a full disk.
    """
    if aside and container is None:
        return rename(agent.aside, agent.container)
    if aside and container and container.new:
        return remove_by_force(agent.container)
    if container is None:
        return None
    if not container.running:
        return start(agent.container)
    return None if container.policy == "always" else set_restart(agent.container, "always")


FAILED = (SparkopsError, OSError)
MOST_STEPS = 10
RETRIES = Waiting(10.0)
"""Of the way back, without an end: an attempt from the start would stop the old agent again."""


def replace(
    node: Node, agent: Replaceable, image: str, patience_s: float = PATIENCE_S, retries: Waiting = RETRIES
) -> str:
    """Replace an agent of a node. Returns why the old one runs again, or nothing if the new one answers.

    The new one gets `patience_s` to answer. Raises SparkopsError or OSError where the old one could not be started
    again within `retries`, or removed.
    """
    with closing(Engine(node)) as engine:
        member = Member(node.name, NodeConfig(transport="local"), node, engine)

        def following() -> Command | None:
            return back(agent, _container(member, agent), aside=engine.container(agent.aside) is not None)

        try:
            _follow(member, agent, lambda: forward(agent, image, _container(member, agent)))
            answered(member, agent.container, lambda: agent.ready(node), patience_s)
        except FAILED as error:
            retries.retry(lambda: _follow(member, agent, following), lambda failed: isinstance(failed, FAILED))
            return error.problem if isinstance(error, NodeError) else str(error)
        discard(member, agent.aside, agent.stop_s)
    return ""


def _follow(member: Member, agent: Replaceable, following: Callable[[], Command | None]) -> None:
    """Run the command that is next until there is none. Raises the errors of Docker, StartFailed after MOST_STEPS."""
    for _ in range(MOST_STEPS):
        command = following()
        if command is None:
            return
        member.node.run(command)
    raise StartFailed(member.name, f"{agent.container} is not as expected after {MOST_STEPS} commands")


def _container(member: Member, agent: Replaceable) -> NamedContainer | None:
    inspect = member.engine.container(agent.container)
    if inspect is None:
        return None
    new = agent.labels.items() <= inspect["Config"]["Labels"].items()
    return NamedContainer(new, inspect["State"]["Running"], inspect["HostConfig"]["RestartPolicy"]["Name"])


def parse(agent: str, *arguments: str) -> Replaceable:
    """Return the version of guard or gateway that has these arguments."""
    return guard_version(*arguments) if agent == GUARD else gateway_version(*arguments)


def main() -> None:
    """Replace the agent, let Docker start this program no more, and exit with 1 if the old agent runs again."""
    image, *arguments = sys.argv[1:]
    agent = parse(*arguments)
    node = LocalNode(arguments[1], docker=SOCKET)
    problem = replace(node, agent, image)
    node.run(set_restart(agent.replacement, "no"))
    sys.exit(problem or 0)


if __name__ == "__main__":
    main()
