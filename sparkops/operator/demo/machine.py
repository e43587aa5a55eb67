"""Facts of this machine before a demonstration, and the reasons to refuse one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkops.command import Command
from sparkops.errors import NotReady, PlanRefused, SparkopsError
from sparkops.names import NODE_LABEL
from sparkops.operator.demo.record import DemoRecord
from sparkops.operator.demo.scene import NODE, SERVICE, Ports

REMOVE = "sparkops demo --remove"
CLIENT = Command(("docker", "--version"), timeout_s=60.0)
"""Names the program behind `docker` without asking its server: Podman's emulation has no server by default."""
ELSEWHERE = "Run it on a Linux machine with Docker Engine, such as a Spark without sparkops."
ROOTFUL = (
    f"If this machine has Docker Engine too: unset DOCKER_HOST; docker context use default. Otherwise: {ELSEWHERE}"
)


@dataclass(frozen=True)
class MachineFacts:
    """This machine before a demonstration."""

    system: str
    """The operating system as Python names it, such as linux."""
    name: str = ""
    """Its host name; empty if unknown."""
    docker: Mapping[str, Any] = field(default_factory=dict)
    """Docker's answer to /info."""
    present: Collection[str] = ()
    """Names of containers and volumes of guard, gateway and releases."""
    listening: Collection[int] = ()
    """Ports on which a program of this machine listens."""
    client: str = ""
    """What CLIENT has printed."""
    server: Collection[str] = ()
    """Names of the parts of Docker's server, in its answer to /version."""


def refusals(
    machine: MachineFacts, ports: Ports, directory: Path, record: DemoRecord | None = None, *, exists: bool
) -> Iterator[SparkopsError]:
    """Yield the reasons why this machine gets no demonstration, each with the next step.

    `record`: that of an earlier demonstration, which was kept or has ended early. `exists`: whether its directory does.
    """
    yield from unsuitable(machine)
    if record or exists:
        problem = f"an earlier demonstration is still on this machine: {record.directory if record else directory}"
        yield PlanRefused(problem, next_step=REMOVE)
    elif found := sorted(machine.present):
        problem = f"this machine belongs to a fleet: it has {', '.join(found)}"
        yield PlanRefused(problem, next_step="Run the demo on another machine; `sparkops status` shows this one.")
    else:
        yield from _taken(machine, ports)


def unsuitable(machine: MachineFacts) -> Iterator[SparkopsError]:
    """Yield why the parts of a fleet cannot run in containers here, or would not share the network of this process."""
    if found := next(_obstacles(machine), None):
        problem, step = found
        yield NotReady(NODE, problem, next_step=step)


def _obstacles(machine: MachineFacts) -> Iterator[tuple[str, str]]:
    """Yield problems with their next steps. Facts that are not known yet yield none."""
    host = machine.docker.get("Name")
    # such as name=seccomp,profile=builtin
    security = {option.split(",")[0] for option in machine.docker.get("SecurityOptions") or ()}
    if machine.system != "linux":
        yield f"the demo needs Linux, got {machine.system}", ELSEWHERE
    if "podman" in " ".join((machine.client, *machine.server)).lower():
        yield "`docker` is Podman here, expected Docker Engine", ROOTFUL
    if "name=rootless" in security:
        yield "rootless Docker: its containers have a network of their own", ROOTFUL
    if "Docker Desktop" in str(machine.docker.get("OperatingSystem", "")):
        yield "Docker Desktop: its containers run in a virtual machine with a network of its own", ROOTFUL
    if machine.name and host and host != machine.name:
        yield f"Docker runs on another machine: it reports the host name {host}, expected {machine.name}", ROOTFUL
    if "name=userns" in security:
        step = f'Remove "userns-remap" from /etc/docker/daemon.json and restart Docker. {ELSEWHERE}'
        yield "Docker maps user IDs (userns-remap): its containers cannot use the network of this machine", step
    if "name=selinux" in security:
        step = f'Set "selinux-enabled" of dockerd to false and restart Docker. {ELSEWHERE}'
        yield "Docker labels containers for SELinux: a container must not use Docker's socket then", step


def _taken(machine: MachineFacts, ports: Ports) -> Iterator[SparkopsError]:
    taken = [f"{port} ({words})" for port, words in ports.words.items() if port in machine.listening]
    if not taken:
        return
    free = next((first for first in range(ports.first, 65000, 10) if not _clash(machine, Ports(first))), None)
    step = f"sparkops demo --port {free}" if free and free != ports.first else "Stop the program that listens there."
    yield PlanRefused(f"ports in use on this machine: {', '.join(taken)}", next_step=step)


def _clash(machine: MachineFacts, ports: Ports) -> bool:
    return any(port in machine.listening for port in ports.words)


def foreign(
    labels: Mapping[str, str] | None,
    record: DemoRecord | None,
    directory: Path,
    user: int,
    services: Collection[str] = (),
) -> SparkopsError | None:
    """Return why nothing may be removed: the guard is that of a fleet, the engines are, or another user's are.

    `labels`: of the guard's container. `record`: that of a demonstration; None without one, then a guard is that of a
    fleet, which may have a node of the same name. `directory`: where this user, the one with the ID `user`, would have
    it. `services`: of the containers of releases.
    """
    if record and user not in (record.user, 0):
        problem = f"the demonstration on this machine is that of the user with ID {record.user}: {record.directory}"
        return PlanRefused(problem, next_step=f"As that user or as root: {REMOVE}")
    node = (labels or {}).get(NODE_LABEL, "")
    if labels is not None and node != NODE:
        problem = f"the guard on this machine is that of node {node} of a fleet, not of a demonstration"
        return PlanRefused(problem, next_step=f"sparkops node uninstall {node}, with the inventory of that fleet")
    if labels is not None and record is None:
        problem = f"the guard on this machine is that of a node named {node}, and no demonstration is recorded"
        step = f"sparkops node uninstall {node}, with the inventory of its fleet; if it has none: mkdir -p {directory}"
        return PlanRefused(problem, next_step=f"{step} && {REMOVE}")
    others = sorted({*services} - {SERVICE})
    if not others or record is None:
        return None
    problem = f"this machine has containers of services other than the demonstration's: {', '.join(others)}"
    step = f"Stop and remove them: docker rm --force CONTAINER; `docker ps --all` lists those of {others[0]}."
    return PlanRefused(problem, next_step=step)
