"""Commands that give room on a node's disk. Each refuses what is in use. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Sequence

from sparkops.command import Command
from sparkops.docker.commands import docker

REMOVE_S = 600.0  # 30 GB of layers are many files


def image(names: Sequence[str]) -> Command:
    """Take names from an image; the last one takes the image with it."""
    return docker("rmi", *names, timeout_s=REMOVE_S)


def volume(name: str) -> Command:
    """Remove a volume."""
    return docker("volume", "rm", name, timeout_s=REMOVE_S)


def build_cache(keep: int) -> Command:
    """Let BuildKit forget what was unused for longest, until at most `keep` bytes are left."""
    return docker("builder", "prune", "--force", "--all", f"--keep-storage={keep}", timeout_s=REMOVE_S)
