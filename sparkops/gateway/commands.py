"""The gateway's container, and what it is told. Its own program does the work: templates/gateway/program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from sparkops.command import Command
from sparkops.docker import places
from sparkops.docker.commands import BOUNDED_LOG, docker
from sparkops.gateway.capacity import MEMORY_MIB
from sparkops.names import GATEWAY, LABEL, Slot
from sparkops.release import image_labels
from sparkops.swap.effects import RequestHold

CONTAINER = places.GATEWAY
VOLUME = "sparkops-gateway"
USER = 10842  # the image's user, to whom the file system in memory belongs
STATE = "/var/lib/gateway"
RIGHTS = ("--cap-drop=ALL", "--security-opt=no-new-privileges")
MEMORY = (f"--tmpfs=/run/gateway:uid={USER},gid={USER},mode=0700",)
STOP_S = 20  # for streams to end by themselves when the gateway is stopped
RELOAD_S = 60.0

TOKEN = Command(("docker", "exec", CONTAINER, "gateway", "token"), timeout_s=30.0)
"""Asks for the token that lets one request go to a slot without traffic: headers x-sparkops-preview, x-sparkops-slot.

It is printed, so its reply must not be shown. It lives as long as the container runs.
"""
SHOW = places.SHOW
SHOW_EACH = places.SHOW_EACH


def labels(inputs: str, memory_mib: int) -> dict[str, str]:
    """Return the labels that tell a container with another image or another limit of its memory apart."""
    return {f"{LABEL}inputs": inputs, f"{LABEL}memory-mib": str(memory_mib)}


def run(image: str, inputs: str, memory_mib: int = MEMORY_MIB) -> Command:
    """Start the container from `image` (an ID). It waits for `configure`, and after a reboot starts by itself.

    Nothing in it is root, its own file system is read-only, and HAProxy's sockets are in memory that only it sees.
    """
    return docker(
        "run",
        "--detach",
        f"--name={CONTAINER}",
        *(
            f"--label={key}={value}"
            for key, value in {**image_labels(GATEWAY, inputs), **labels(inputs, memory_mib)}.items()
        ),
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


def ask_image(image: str, files: Mapping[str, str | None]) -> Command:
    """Ask an image, in a container of its own and without network, whether its HAProxy takes these files.

    They are in memory only: the private key of the certificate is one of them.
    """
    options = ("--rm", "--interactive", "--network=none", "--log-driver=none", "--read-only", *MEMORY, *RIGHTS)
    memory = f"--tmpfs={STATE}:uid={USER},gid={USER},mode=0700"
    return docker("run", *options, memory, image, "try", stdin=_text(files), timeout_s=120.0)


def configure(files: Mapping[str, str | None]) -> Command:
    """Give files to the gateway, all or none. It reloads where they differ, so a swap never comes by here."""
    return _tell("configure", stdin=_text(files), timeout_s=RELOAD_S)


def forget(service: str) -> Command:
    """Remove a service that is switched to nobody. Reloads."""
    return _tell("forget", service, timeout_s=RELOAD_S)


def point(service: str, slot: Slot, release: str, addresses: Iterable[tuple[str, int]]) -> Command:
    """Let a slot without traffic mean `release` at these addresses and ports."""
    servers = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)
    return _tell("point", service, slot, release, *servers)


def switch(service: str, slot: Slot, release: str) -> Command:
    """Give the traffic to a slot. Refused by the gateway unless the slot was pointed at `release`."""
    return _tell("switch", service, slot, release)


def switch_down(service: str) -> Command:
    """Give the traffic to nobody: every request is answered with 503 and Retry-After."""
    return _tell("switch", service, "down")


def hold(service: str, hold: RequestHold) -> Command:
    """Let requests wait for a start in place of the release that had the traffic."""
    return _tell("hold", service, hold.mark, f"{hold.left_s:g}", f"{hold.longest_s:g}", str(hold.most))


def cut(service: str, slot: Slot) -> Command:
    """End every request under way in a slot. Prints how many there were."""
    return _tell("cut", service, slot)


def preview(service: str, slot: Slot) -> Command:
    """Ask a slot without traffic through the gateway itself. Prints the release that answered; fails if none did."""
    return Command(("docker", "exec", CONTAINER, "gateway", "preview", service, slot, "/v1/models"), timeout_s=30.0)


def stop() -> Command:
    """SIGUSR1, and SIGKILL after STOP_S seconds."""
    return docker("stop", CONTAINER, timeout_s=STOP_S + 60.0)


def remove() -> Command:
    """Remove the stopped container. Its volume stays, so the next one continues where it ended."""
    return docker("rm", CONTAINER)


def _text(files: Mapping[str, str | None]) -> bytes:
    return json.dumps(dict(files)).encode() + b"\n"  # the program reads a line: an end of stdin may get lost


def _tell(verb: str, *words: str, stdin: bytes = b"", timeout_s: float = 40.0) -> Command:
    interactive = ("--interactive",) if stdin else ()
    return docker("exec", *interactive, CONTAINER, "gateway", verb, *words, stdin=stdin, timeout_s=timeout_s)
