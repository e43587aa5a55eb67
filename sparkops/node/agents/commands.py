"""Commands for the guard's container, which keeps a node's journals and completes swaps without the client."""

from __future__ import annotations

from sparkops.command import Command
from sparkops.config.release import image_labels
from sparkops.names import GUARD, NODE_LABEL
from sparkops.node.docker import places
from sparkops.node.docker.commands import BOUNDED_LOG, docker, label_options

CONTAINER = places.CONTAINER
VOLUME = "sparkops-state"
STATE = places.STATE
SOCKET = "/var/run/docker.sock"
BOOT_ID = "/run/boot_id"
"""Path of the node's boot ID in the guard's container."""
PEER_PORT = 10844
"""Port for the leader's messages, which are signed."""
STOP_S = 10
"""Seconds between SIGTERM and SIGKILL. A guard's work can be interrupted at any point."""
RELAY = places.RELAY
DOCKER = Command(("docker", "version", "--format={{.Server.Version}}"), timeout_s=10.0)
"""Checks that Docker answers, from inside the guard's container."""
REACHES = Command(("docker", "exec", CONTAINER, *DOCKER.argv), timeout_s=30.0)
"""Checks that the guard reaches Docker: it loses the socket if Docker restarts without its containers."""
PROVE = ("sh", "-c", f"python3 -c 'import sparkops.guard.daemon, sparkops.guard.replacing' && {DOCKER}")
READY = Command(
    ("docker", "exec", CONTAINER, "sh", "-c", f"python3 -m sparkops.guard.ask </dev/null && {DOCKER}"), timeout_s=30.0
)
"""Checks that the guard accepts requests, without sending one, and that it reaches Docker.

Not --interactive: Docker can lose the end of stdin while the container starts.
"""
RESTART = docker("restart", CONTAINER, timeout_s=STOP_S + 60.0)
"""Restarts the guard with new mounts."""

# Root in the container owns the socket, so it needs no capability to use it. Access to the socket is as good as root
# on the node, for the guard as for any user of Docker there. NET_ADMIN is for nftables.
RIGHTS = (
    "--cap-drop=ALL",
    "--cap-add=NET_ADMIN",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--tmpfs=/tmp",
    f"--mount=type=bind,source={SOCKET},target={SOCKET}",
)


def run(image: str, inputs: str, node: str) -> Command:
    """Start the container from `image` (an ID) on the node of that name. Docker restarts it after a reboot.

    The journals are in its volume, so the next guard continues from them.
    """
    return docker(
        "run",
        "--detach",
        f"--name={CONTAINER}",
        *label_options({**image_labels(GUARD, inputs), NODE_LABEL: node}),
        "--network=host",
        "--restart=always",
        *RIGHTS,
        f"--mount=type=bind,source=/proc/sys/kernel/random/boot_id,target={BOOT_ID},readonly",
        f"--volume={VOLUME}:{STATE}",
        f"--volume={places.RUN}:{places.RUN}",
        f"--env=SPARKOPS_NODE={node}",
        f"--stop-timeout={STOP_S}",
        *BOUNDED_LOG,
        image,
        timeout_s=120.0,
    )


def check_image(image: str) -> Command:
    """Check in a separate container that the guard of an image can be imported and reaches this node's Docker."""
    return docker("run", "--rm", "--network=none", *RIGHTS, image, *PROVE, timeout_s=120.0)


def check(image: str) -> Command:
    """Read all files of this node's guard with a new guard's image. Fails with the unreadable ones."""
    volume = f"--volume={VOLUME}:{STATE}:ro"
    options = ("--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", volume)
    return docker("run", *options, image, "python3", "-m", "sparkops.guard.check", timeout_s=120.0)


def replacement(container: str) -> str:
    """Return the name of the container whose program replaces the guard's or the gateway's container."""
    return f"{container}-replacement"


def aside(container: str) -> str:
    """Return the name of the old container of guard or gateway until the new one answers."""
    return f"{container}-old"


def replace(program: str, container: str, *arguments: str) -> Command:
    """Start sparkops.guard.replacing, which replaces guard or gateway, from a guard's image with the ID `program`.

    Docker restarts it, also after a reboot, until the replacement has ended.
    """
    runs = ("python3", "-m", "sparkops.guard.replacing", *arguments)
    options = (f"--name={replacement(container)}", "--network=none", "--restart=always", *RIGHTS, *BOUNDED_LOG)
    return docker("run", "--detach", *options, program, *runs, timeout_s=120.0)
