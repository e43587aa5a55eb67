"""Facts of this machine before a demonstration, and the reasons to refuse one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkops.demo.scene import NODE, RECIPE, SERVICE, Ports
from sparkops.errors import NotReady, PlanRefused, SparkopsError
from sparkops.guard_client.commands import NODE_LABEL
from sparkops.names import GATEWAY, GUARD
from sparkops.prune.plan import Removal
from sparkops.prune.retention import CACHE, CANDIDATE, IMAGE
from sparkops.release import TRUSTED, recipe_of

REMOVE = "sparkops demo --remove"


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


def refusals(machine: MachineFacts, ports: Ports, directory: Path, *, exists: bool) -> Iterator[SparkopsError]:
    """Yield the reasons why this machine gets no demonstration, each with the next step.

    `exists`: whether the directory of a demonstration exists, so an earlier one was kept or has ended early.
    """
    yield from unsuitable(machine)
    if exists:
        problem = f"an earlier demonstration is still on this machine: {directory}"
        yield PlanRefused(problem, next_step=REMOVE)
    elif found := sorted(machine.present):
        problem = f"this machine belongs to a fleet: it has {', '.join(found)}"
        yield PlanRefused(problem, next_step="Run the demo on another machine; `sparkops status` shows this one.")
    else:
        yield from _taken(machine, ports)


def unsuitable(machine: MachineFacts) -> Iterator[SparkopsError]:
    """Yield why containers here would not share the network of this process."""
    security, host = machine.docker.get("SecurityOptions") or (), machine.docker.get("Name")
    problem = ""
    if machine.system != "linux":
        problem = f"the demo needs Linux, got {machine.system}"
    elif any("rootless" in option for option in security):
        problem = "rootless Docker: its containers have a network of their own"
    elif "Docker Desktop" in str(machine.docker.get("OperatingSystem", "")):
        problem = "Docker Desktop: its containers run in a virtual machine with a network of its own"
    elif machine.name and host and host != machine.name:
        problem = f"Docker runs on another machine: it reports the host name {host}, expected {machine.name}"
    if problem:
        step = "Run it on a Linux machine with Docker Engine, such as a Spark without sparkops."
        yield NotReady(NODE, problem, next_step=step)


def _taken(machine: MachineFacts, ports: Ports) -> Iterator[SparkopsError]:
    taken = [f"{port} ({words})" for port, words in ports.words.items() if port in machine.listening]
    if not taken:
        return
    free = next((first for first in range(ports.first, 65000, 10) if not _clash(machine, Ports(first))), None)
    step = f"sparkops demo --port {free}" if free and free != ports.first else "Stop the program that listens there."
    yield PlanRefused(f"ports in use on this machine: {', '.join(taken)}", next_step=step)


def _clash(machine: MachineFacts, ports: Ports) -> bool:
    return any(port in machine.listening for port in ports.words)


def foreign(labels: Mapping[str, str] | None, services: Collection[str] = (), *, exists: bool) -> SparkopsError | None:
    """Return why nothing may be removed: the guard on this machine is that of a fleet, or it has other engines.

    `labels`: of its container. `services`: of the containers of releases. `exists`: whether there is the directory of a
    demonstration, which a fleet with a node of the same name does not have.
    """
    if labels is None or (exists and labels.get(NODE_LABEL) == NODE):
        others = sorted({*services} - {SERVICE})
        if not others or not exists:
            return None
        problem = f"this machine has containers of services other than the demonstration's: {', '.join(others)}"
        step = f"Stop and remove them: docker rm --force CONTAINER; `docker ps --all` lists those of {others[0]}."
        return PlanRefused(problem, next_step=step)
    node = labels.get(NODE_LABEL, "")
    problem = f"the guard on this machine is that of node {node} of a fleet, not of a demonstration of this user"
    return PlanRefused(problem, next_step=f"sparkops uninstall {node}, with the inventory of that fleet")


def stays(removal: Removal, before: Collection[tuple[str, str, str]]) -> bool:
    """Return whether a removal would take what is not the demonstration's: images and volumes of other recipes.

    `before`: keys of what this machine had before it. Of those only images and volumes stay: a machine with an agent
    gets no demonstration, so firewall table and directory are the demonstration's now.
    """
    if removal.kind not in ("image", "volume"):
        return False
    return removal.key in before or bool({*_recipes(removal)} - {RECIPE, GUARD, GATEWAY})


def _recipes(removal: Removal) -> Iterator[str]:
    """Yield the names of the recipes of an image, or of a mark or cache; none for other volumes and lost names."""
    if removal.kind == "image":
        yield from (recipe_of(tag) for tag in removal.name.split(", ") if tag.startswith((IMAGE, CANDIDATE)))
    for prefix, digests in ((TRUSTED, 2), (CACHE, 1)):
        if removal.kind == "volume" and removal.name.startswith(prefix):
            yield removal.name.removeprefix(prefix).rsplit("-", digests)[0]
