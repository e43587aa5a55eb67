"""The fixes of `doctor --fix`: commands that stop and delete nothing and can be repeated. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.config.inventory import NodeConfig
from sparkops.docker.commands import model_dir
from sparkops.docker.places import CONTAINER, GATEWAY
from sparkops.gateway.commands import SHOW
from sparkops.gateway.facts import parse_gateway
from sparkops.guard_client.commands import READY
from sparkops.memory import pages
from sparkops.network.finding import Finding

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
class Fix:
    """A command for a finding, and its description."""

    finding: Finding
    words: str
    command: Command
    started: StartedAgent | None = None
    """What the command starts."""


def require_haproxy(shown: str) -> None:
    """Raise ValueError until HAProxy answers inside the gateway's container, which answers by itself before."""
    if problem := parse_gateway(shown).problem:
        raise ValueError(problem)


STARTED = {
    "GUARD_DOWN": StartedAgent(CONTAINER, READY),
    "GATEWAY_DOWN": StartedAgent(GATEWAY, SHOW, require_haproxy),
}


def fixes(findings: Iterable[Finding], nodes: Mapping[str, NodeConfig]) -> Iterator[Fix]:
    for finding in findings:
        if finding.fixable:
            yield Fix(finding, *_action(finding.code, nodes[finding.node]), STARTED.get(finding.code))


def _action(code: str, node: NodeConfig) -> tuple[str, Command]:
    match code:
        case "GUARD_DOWN" | "GATEWAY_DOWN":
            argv = ("docker", "start", STARTED[code].container)
            return " ".join(argv), Command(argv, timeout_s=TIMEOUT_S, changes=True)
        case "PAGE_CACHE":
            directory = model_dir(node)
            return f"drop clean pages of files in {directory} (posix_fadvise)", pages.drop_directory(directory)
        case "CLOCK":
            return _as_root("timedatectl", "set-ntp", "true")
        case "NO_CDI_SPEC":
            return _as_root("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml")
        case _:
            raise ValueError(f"{code}: this code has no fix")


def _as_root(*argv: str) -> tuple[str, Command]:
    """Return a command that runs as root; sudo fails where it needs a password."""
    command = Command(("sh", "-c", AS_ROOT, "sparkops", *argv), timeout_s=TIMEOUT_S, changes=True)
    return f"sudo {' '.join(argv)}", command
