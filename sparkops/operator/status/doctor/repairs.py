"""What `doctor --fix` runs for a finding. Nothing stops or deletes anything, and all can be repeated. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.gateway.commands import SHOW
from sparkops.gateway.facts import parse_gateway
from sparkops.node.agents.commands import READY
from sparkops.node.docker.commands import model_dir
from sparkops.node.docker.places import CONTAINER, GATEWAY
from sparkops.serving.memory import pages

AS_ROOT = 'if [ "$(id -u)" != 0 ]; then set -- sudo -n "$@"; fi; exec "$@"'
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class StartedAgent:
    """A container that takes seconds until it answers, and the command that asks it."""

    container: str
    answers: Command
    check: Callable[[str], None] = lambda _: None
    """Raises ValueError for the output of one that is not ready yet."""


@dataclass(frozen=True)
class Repair:
    """A command and its description."""

    words: str
    command: Command
    started: StartedAgent | None = None
    """What the command starts."""


def require_haproxy(shown: str) -> None:
    """Raise ValueError until HAProxy answers inside the gateway's container, which answers by itself before."""
    if problem := parse_gateway(shown).problem:
        raise ValueError(problem)


def _start(agent: StartedAgent) -> Repair:
    argv = ("docker", "start", agent.container)
    return Repair(" ".join(argv), Command(argv, timeout_s=TIMEOUT_S, changes=True), agent)


def _as_root(*argv: str) -> Repair:
    """Return a command that runs as root; sudo fails where it needs a password."""
    command = Command(("sh", "-c", AS_ROOT, "sparkops", *argv), timeout_s=TIMEOUT_S, changes=True)
    return Repair(f"sudo {' '.join(argv)}", command)


def start_guard(_: NodeConfig) -> Repair:
    return _start(StartedAgent(CONTAINER, READY))


def start_gateway(_: NodeConfig) -> Repair:
    return _start(StartedAgent(GATEWAY, SHOW, require_haproxy))


def drop_pages(node: NodeConfig) -> Repair:
    directory = model_dir(node)
    return Repair(f"drop clean pages of files in {directory} (posix_fadvise)", pages.drop_directory(directory))


def synchronize_clock(_: NodeConfig) -> Repair:
    return _as_root("timedatectl", "set-ntp", "true")


def generate_cdi_spec(_: NodeConfig) -> Repair:
    return _as_root("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml")
