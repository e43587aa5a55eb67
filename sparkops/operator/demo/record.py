"""The record of a demonstration, which its removal needs. Pure.

It is the label of a volume and no file: then it lasts as long as the containers, whatever becomes of the directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparkops import foreign
from sparkops.command import Command
from sparkops.config.release import CACHES, TRUSTED, name_of
from sparkops.errors import SparkopsError
from sparkops.names import GATEWAY, GUARD, LABEL
from sparkops.node.docker.commands import docker
from sparkops.operator.demo.scene import ENGINES, RECIPE
from sparkops.operator.deploy.prune.stored import OWN_TAGS

VOLUME = "sparkops-demo"
RECORD_LABEL = f"{LABEL}demo"
READ = Command(
    ("docker", "volume", "ls", f"--filter=label={RECORD_LABEL}", f'--format={{{{.Label "{RECORD_LABEL}"}}}}'),
    timeout_s=60.0,
)
"""Prints the record; nothing without one."""
FORGET = docker("volume", "rm", "--force", VOLUME)
"""Removes the record; succeeds without one too."""


@dataclass(frozen=True)
class DemoRecord:
    """Where a demonstration has its files, whose it is, and what this machine had before."""

    directory: str
    user: int
    """ID of the user who started it."""
    spared: tuple[str, ...] = ()
    """Images and volumes of sparkops that this machine had before it, which stay.

    Only those: a machine with an agent gets no demonstration, so firewall table and directory are the demonstration's.
    """
    created: tuple[str, ...] = ()
    """Directories that did not exist before it: its own, then those above it."""

    def keep(self) -> Command:
        """Return the command that makes Docker keep the record."""
        return docker("volume", "create", f"--label={RECORD_LABEL}={json.dumps(asdict(self))}", VOLUME)

    def stays(self, name: str) -> bool:
        """Return whether an image or volume of this name is not the demonstration's, but of another recipe."""
        return name in self.spared or bool({*_names(name)} - {RECIPE, *ENGINES, GUARD, GATEWAY})


def parse(printed: str) -> DemoRecord | None:
    """Return the record that READ has printed; None without one. Raises SparkopsError for another label."""
    if not printed.strip():
        return None
    try:
        values: Mapping[str, Any] = foreign.loads(printed)
        spared, created = (tuple(map(str, values[key])) for key in ("spared", "created"))
        return DemoRecord(str(values["directory"]), int(values["user"]), spared, created)
    except (ValueError, KeyError, TypeError) as error:
        problem = f"volume {VOLUME}: label {RECORD_LABEL}: no record of a demonstration: {error!r}"
        step = f"Remove what `docker ps --all` shows of the demonstration, then: {FORGET}"
        raise SparkopsError(problem, next_step=step) from None


def _names(name: str) -> Iterator[str]:
    """Yield the engine or agent of an image's tag or mark, or the recipe of a cache; none for other names."""
    if name.startswith(OWN_TAGS):
        yield name_of(name)
    for prefix, digests in ((TRUSTED, 2), (CACHES, 1)):
        if name.startswith(prefix):
            yield name.removeprefix(prefix).rsplit("-", digests)[0]
