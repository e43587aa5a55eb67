"""What a program on a node needs to replace an agent, and the guard so. Guards import this, so it builds no image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.names import GUARD, INPUTS, NODE_LABEL
from sparkops.node.agents import commands
from sparkops.node.node import Node


@dataclass(frozen=True)
class Replaceable:
    """The container of one version of guard or gateway. It has `labels`, and no container of another version has."""

    name: str
    container: str
    labels: Mapping[str, str]
    run: Callable[[str], Command]
    """Creates and starts the container from an image."""
    ready: Callable[[Node], object]
    """Raises NodeError or ValueError unless the container answers."""
    stop_s: int
    """Seconds between SIGTERM, or the image's own signal, and SIGKILL."""
    overlaps: bool
    """Whether two versions may run at once: the old one then runs until the new one answers."""
    arguments: tuple[str, ...]
    """Words from which `parse` of sparkops.guard.replacing makes the same value."""

    @property
    def aside(self) -> str:
        """Name of the old container until the new one answers."""
        return commands.aside(self.container)

    @property
    def replacement(self) -> str:
        """Name of the container whose program replaces this one."""
        return commands.replacement(self.container)


def guard_version(node: str, inputs: str) -> Replaceable:
    """Return the guard of a node, from an image with these inputs. Two guards would write the same journals."""
    return Replaceable(
        name=GUARD,
        container=commands.CONTAINER,
        labels={INPUTS: inputs, NODE_LABEL: node},
        run=lambda image: commands.run(image, inputs, node),
        ready=lambda reached: reached.run(commands.READY),
        stop_s=commands.STOP_S,
        overlaps=False,
        arguments=(GUARD, node, inputs),
    )
