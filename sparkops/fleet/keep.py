"""What is left of a failed start, saved for a person to read: here, and on its node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparkops.command import Command
from sparkops.commands import docker
from sparkops.commands.guard import CONTAINER
from sparkops.errors import SparkopsError
from sparkops.facts import docker as docker_facts
from sparkops.fleet import private
from sparkops.fleet.connected import Member
from sparkops.fleet.guarded import linked
from sparkops.redact import redacted

FAILED_GRACE_S = 10  # a server that never answered has nothing to finish
LOG_LINES, LOG_CHARACTERS = 20_000, 2**20  # the end of a log; the container has the whole
FILES = ("log.txt", "inspect.json", "memory.csv", "probe.json")


@dataclass(frozen=True)
class Keep:
    """`directory` gives a node's directory on this machine. `there`: the node's guard keeps a copy as well.

    What is noted while all goes well is written only after a failure.
    """

    directory: Callable[[str], Path]
    there: bool = False
    noted: dict[tuple[str, str], str] = field(default_factory=dict)
    shown: Callable[[Path], str] = str
    """Names a saved directory for a reader on another machine."""
    saved: list[str] = field(default_factory=list)
    """Where evidence was saved, for the history."""

    def note(self, node: str, file: str, text: str) -> None:
        """Have a text ready for the case of a failure."""
        self.noted[node, file] = text

    def save(self, member: Member, name: str, error: SparkopsError) -> None:
        """Save log, inspect and what was noted of a container; the error notes where."""
        inspect = member.engine.container(name)
        if inspect is None:
            return
        log = member.engine.log(name, tail=LOG_LINES)[-LOG_CHARACTERS:]
        noted = {file: text for (node, file), text in self.noted.items() if node == member.name}
        files = {"log.txt": log, "inspect.json": json.dumps(inspect, indent=2), **noted}
        files = {file: redacted(text) for file, text in files.items()}
        directory = _write(self.directory(member.name), files)
        self.saved.append(self.shown(directory))
        error.add_note(f"saved: {directory}")
        if self.there:
            container = docker_facts.parse(member.name, inspect)
            with linked(member) as link:
                if link:
                    path = link.ask("keep", container.service, release=container.release, files=files)
                    self.saved.append(on_node(member.name, path))
                    error.add_note(f"saved on {member.name} as well: {copy_command(path)}")


def copy_command(path: Path | str) -> str:
    """Return the command that copies evidence out of the guard's container, on its node."""
    return f"docker cp {CONTAINER}:{path} ."


def on_node(node: str, path: Path | str) -> str:
    """Return where evidence is that the guard of `node` saved."""
    return f"{node}: {copy_command(path)}"


def _write(directory: Path, files: Mapping[str, str]) -> Path:
    """A file of an earlier failure would say something else."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (directory / name).unlink(missing_ok=True)
    private.write(directory, files)
    return directory


def put_away(
    member: Member, name: str, keep: Keep, error: SparkopsError, run: Callable[[Command], object] | None = None
) -> None:
    """Save what a person needs to understand a failure, and stop the container. The first error stays the error."""
    with _noted(error):
        keep.save(member, name, error)
    with _noted(error):
        _stop(member, name, error, run or member.node.run)


@contextmanager
def _noted(error: SparkopsError) -> Iterator[None]:
    """A second error is a note of the first."""
    try:
        yield
    except (SparkopsError, OSError) as second:
        error.add_note(f"and then, while putting it away: {second}")


def _stop(member: Member, name: str, error: SparkopsError, run: Callable[[Command], object]) -> None:
    inspect = member.engine.container(name)
    if inspect is None:
        return
    if inspect["HostConfig"]["RestartPolicy"]["Name"] not in ("", "no"):
        run(docker.stay_stopped(name))
    run(docker.stop(name, FAILED_GRACE_S))
    error.add_note(f"{name} is stopped, and stays on {member.name} with its log")
