"""Nodes of this machine, each with a model directory of its own. No Docker: nothing here asks an engine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

from sparkops.config.inventory import Build, Fleet
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.operator.fleet.connected import Connected
from tests.examples import node


def member(name: str, models: Path, cancel: threading.Event | None = None) -> Member:
    """A node at 127.0.0.1, which others can call, that needs no engine for what is tested."""
    config = node(address="127.0.0.1", model_dir=str(models))
    models.mkdir(exist_ok=True)
    return Member(name, config, LocalNode(name, cancel or threading.Event()), cast("Engine", None))


def connected(*members: Member) -> Connected:
    """All of them at once, with one Ctrl-C."""
    nodes = {member.name: member.config for member in members}
    fleet = Fleet(file=Path("inventory.yaml"), nodes=nodes, build=Build(), known_hosts=Path("known_hosts"))
    return Connected(fleet, {member.name: member for member in members}, cancel=members[0].node.cancel)


def processes_about(text: str) -> Iterator[str]:
    """The command lines of processes that name `text`, and of all that this process has started itself.

    The server that forks sparkops for tests is left out: it lives as long as this process.
    """
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            running = int(parent) == os.getpid() and state != "Z"
            if place.name != str(os.getpid()) and (running or text in line) and "tests.fork_server" not in line:
                yield line
