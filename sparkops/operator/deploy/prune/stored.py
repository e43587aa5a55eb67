"""What a node has of sparkops, by labels and names, and the commands that remove it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkops.command import Command
from sparkops.config.release import CACHES, CANDIDATES, TAGS, TRUSTED
from sparkops.names import INPUTS
from sparkops.node.docker.commands import docker
from sparkops.node.docker.facts import Container

REMOVE_S = 600.0  # 30 GB of layers are many files
OWN_TAGS = (TAGS, CANDIDATES)
OWN_VOLUMES = (TRUSTED, CACHES)
"""Marks of verified images, and compiled kernels of releases."""


@dataclass(frozen=True)
class StoredImage:
    """An image of sparkops. `named_s`: when it was built, or got its newest name, in seconds since 1970."""

    id: str
    tags: tuple[str, ...]
    inputs: str
    named_s: float

    @property
    def own_tags(self) -> tuple[str, ...]:
        """The tags that sparkops gave it."""
        return tuple(tag for tag in self.tags if tag.startswith(OWN_TAGS))


@dataclass(frozen=True)
class Stored:
    """What one node has. `used`: the image ID of every container by the container's name, of all programs."""

    node: str
    engines: tuple[Container, ...] = ()
    images: tuple[StoredImage, ...] = ()
    volumes: tuple[str, ...] = ()
    """The names of all volumes, of all programs."""
    used: Mapping[str, str] = field(default_factory=dict)
    free: int | None = None
    """Free bytes of Docker's disk; None if unknown."""
    now_s: float = 0.0


def parse_image(inspect: Mapping[str, Any]) -> StoredImage | None:
    """Parse the inspect of an image; None for one that sparkops has not built: by its name, or its label without one.

    An image of other tools may have no time; Docker 25 leaves it out then.
    """
    times = inspect.get("Created") or "", inspect.get("Metadata", {}).get("LastTagTime") or ""
    inputs = (inspect["Config"].get("Labels") or {}).get(INPUTS, "")
    image = StoredImage(inspect["Id"], tuple(inspect["RepoTags"] or ()), inputs, max(map(_moment, times)))
    return image if image.own_tags or (inputs and not image.tags) else None


def _moment(text: str) -> float:
    """Return seconds since 1970; 0 for no time, which Docker writes as the first day of year 1."""
    return datetime.fromisoformat(text).timestamp() if text and not text.startswith("0001-") else 0.0


def remove_image(names: Sequence[str]) -> Command:
    """Remove names of an image, and with its last name the image."""
    return docker("rmi", *names, timeout_s=REMOVE_S)


def remove_volume(name: str) -> Command:
    return docker("volume", "rm", name, timeout_s=REMOVE_S)
