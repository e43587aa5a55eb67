"""What is left of a failed start, saved for a person to read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparkops.command import Command
from sparkops.commands import docker
from sparkops.errors import SparkopsError
from sparkops.fleet.connected import Member
from sparkops.plan.smoke import Report

FAILED_GRACE_S = 10  # a server that never answered has nothing to finish


@dataclass(frozen=True)
class Keep:
    """`directory` gives a node's directory on this machine."""

    directory: Callable[[str], Path]

    def container(self, member: Member, name: str) -> Path:
        """Save log and inspect of a container. Returns where."""
        directory = self._made(member.name)
        inspect = member.engine.container(name)
        if inspect is not None:
            (directory / "log.txt").write_text(member.engine.log(name))
            (directory / "inspect.json").write_text(json.dumps(inspect, indent=2))
        return directory

    def transcript(self, node: str, report: Report) -> None:
        """Save all that was asked and answered."""
        (self._made(node) / "probe.json").write_text(json.dumps(report.as_json(), indent=2))

    def _made(self, node: str) -> Path:
        directory = self.directory(node)
        directory.mkdir(parents=True, exist_ok=True)
        return directory


def put_away(
    member: Member, name: str, keep: Keep, error: SparkopsError, run: Callable[[Command], object] | None = None
) -> None:
    """Save what a person needs to understand a failure, then stop the container. The first error stays the error."""
    act = run or member.node.run
    try:
        error.add_note(f"saved: {keep.container(member, name)}")
        inspect = member.engine.container(name)
        if inspect is None:
            return
        if inspect["HostConfig"]["RestartPolicy"]["Name"] not in ("", "no"):
            act(docker.stay_stopped(name))
        act(docker.stop(name, FAILED_GRACE_S))
        error.add_note(f"{name} is stopped, and stays on {member.name} with its log")
    except (SparkopsError, OSError) as second:
        error.add_note(f"and then, while putting it away: {second}")
