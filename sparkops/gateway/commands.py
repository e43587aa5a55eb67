"""Commands for the gateway's container and for its program, templates/gateway/program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkops.command import Command
from sparkops.config.release import image_labels
from sparkops.gateway.capacity import MEMORY_MIB
from sparkops.names import GATEWAY, INPUTS, LABEL, Slot, host_port
from sparkops.node.docker import places
from sparkops.node.docker.commands import BOUNDED_LOG, docker, label_options
from sparkops.swap.effects import RequestHold


@dataclass(frozen=True)
class Endpoint:
    """Where a replica answers, and its release."""

    address: str
    port: int
    release: str


CONTAINER = places.GATEWAY
VOLUME = "sparkops-gateway"
USER = places.GATEWAY_USER  # who owns the file system in memory
STATE = "/var/lib/gateway"
RIGHTS = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
MEMORY = (f"--tmpfs=/run/gateway:uid={USER},gid={USER},mode=0700",)
STOP_S = 20  # for open streams to end when the gateway stops
RELOAD_S = 60.0
REMOVE_VOLUME = docker("volume", "rm", "--force", VOLUME)
"""Succeeds without one."""

SHOW = places.SHOW
SHOW_EACH = places.SHOW_EACH
PROBE_EACH = places.PROBE_EACH


def labels(inputs: str, memory_mib: int) -> dict[str, str]:
    """Return the labels that identify the image and the memory limit of a container."""
    return {INPUTS: inputs, f"{LABEL}memory-mib": str(memory_mib)}


def run(image: str, inputs: str, memory_mib: int = MEMORY_MIB) -> Command:
    """Start the container from `image` (an ID). It waits for `configure`; Docker restarts it after a reboot.

    No process in it is root, its file system is read-only, and HAProxy's sockets are in memory of the container.
    """
    return docker(
        "run",
        "--detach",
        f"--name={CONTAINER}",
        *label_options({**image_labels(GATEWAY, inputs), **labels(inputs, memory_mib)}),
        "--network=host",
        "--restart=always",
        *RIGHTS,
        "--read-only",
        f"--memory={memory_mib}m",
        f"--memory-swap={memory_mib}m",
        *MEMORY,
        f"--volume={VOLUME}:{STATE}",
        f"--stop-timeout={STOP_S}",
        *BOUNDED_LOG,
        image,
        timeout_s=120.0,
    )


def check_image(image: str, files: Mapping[str, str | None]) -> Command:
    """Check these files with the HAProxy of an image, in a separate container without network.

    The files are in memory only, as one has the private key of the certificate.
    """
    options = ("--rm", "--interactive", "--network=none", "--log-driver=none", "--read-only", *MEMORY, *RIGHTS)
    memory = f"--tmpfs={STATE}:uid={USER},gid={USER},mode=0700"
    return docker("run", *options, memory, image, "try", stdin=_text(files), timeout_s=120.0)


def configure(files: Mapping[str, str | None]) -> Command:
    """Replace files of the gateway, all or none, and reload it if they differ. A swap does not use this."""
    return _tell("configure", stdin=_text(files), timeout_s=RELOAD_S)


def forget(service: str) -> Command:
    """Remove a service that is switched to down, and reload."""
    return _tell("forget", service, timeout_s=RELOAD_S)


def point(service: str, slot: Slot, release: str, servers: Iterable[Endpoint]) -> Command:
    """Set the release and servers of a slot. Fails if it is active, unless some of its servers stay."""
    words = (
        host_port(server.address, server.port) + (f"={server.release}" if server.release != release else "")
        for server in servers
    )
    return _tell("point", service, slot, release, *words)


def switch(service: str, slot: Slot, release: str) -> Command:
    """Send the traffic to a slot. Fails unless the slot points at `release`."""
    return _tell("switch", service, slot, release)


def switch_down(service: str, *, stopped: bool = False) -> Command:
    """Reply to every request with 503 and Retry-After; of a `stopped` service without it.

    A gateway of an earlier version takes the further word for a release, and ignores it.
    """
    return _tell("switch", service, "down", *(("stopped",) if stopped else ()))


def hold(service: str, hold: RequestHold) -> Command:
    """Hold requests until a start has ended."""
    return _tell("hold", service, hold.mark, f"{hold.left_s:g}", f"{hold.longest_s:g}", str(hold.most))


def cut(service: str, slot: Slot, *, left: bool = False) -> Command:
    """End every open request of a slot. Prints how many have ended. `left`: of servers that it has lost."""
    return _tell("cut", service, slot, *(("left",) if left else ()))


def preview(service: str, slot: Slot) -> Command:
    """Send a request to a slot, as the guard does. Prints the release; fails without an answer."""
    return Command(("docker", "exec", CONTAINER, "gateway", "preview", service, slot, "/v1/models"), timeout_s=30.0)


def _text(files: Mapping[str, str | None]) -> bytes:
    return json.dumps(dict(files)).encode() + b"\n"  # one line: Docker may lose the end of stdin


def _tell(verb: str, *words: str, stdin: bytes = b"", timeout_s: float = 40.0) -> Command:
    interactive = ("--interactive",) if stdin else ()
    return docker("exec", *interactive, CONTAINER, "gateway", verb, *words, stdin=stdin, timeout_s=timeout_s)
