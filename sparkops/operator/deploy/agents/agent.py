"""An agent as a value: its container, its image, and what its replacement needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.node.agents.replaceable import Replaceable
from sparkops.operator.build.images.build import BuildOrder


@dataclass(frozen=True)
class Agent:
    """Guard or gateway of a node. It is up to date if its container runs and has the labels."""

    version: Replaceable
    order: BuildOrder
    program: BuildOrder
    """The guard's image, which has the program that replaces both agents."""
    costs: str
    """Effect of a replacement on clients."""
    check: Callable[[str], Command] | None = None
    """Fails unless an image can read the files of its predecessor; None without such a check."""

    @property
    def container(self) -> str:
        """Name of the container."""
        return self.version.container

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that only a container of this version has."""
        return self.version.labels
