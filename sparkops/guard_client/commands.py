"""The guard's container: it keeps a node's journals, and ends what a deploy that is gone has begun."""

from __future__ import annotations

from sparkops.command import Command
from sparkops.docker import places
from sparkops.docker.commands import BOUNDED_LOG, docker
from sparkops.names import GUARD, LABEL
from sparkops.release import image_labels

CONTAINER = places.CONTAINER
ASIDE = f"{CONTAINER}-old"
"""The name of a guard's container until the guard that replaces it answers."""
REPLACEMENT = f"{CONTAINER}-replacement"
"""The name of the container that replaces a guard. It needs no client."""
VOLUME = "sparkops-state"
STATE = places.STATE
SOCKET = "/var/run/docker.sock"
BOOT_ID = "/run/boot_id"
"""Where the guard sees the id of its node's boot."""
NODE_LABEL = f"{LABEL}node"
PEER_PORT = 10844
"""Where a guard receives its leader's messages. They are signed."""
STOP_S = 10
ASK = places.ASK
DOCKER = Command(("docker", "version", "--format={{.Server.Version}}"), timeout_s=10.0)
"""Whether Docker answers; asked by the guard itself."""
REACHES = Command(("docker", "exec", CONTAINER, *DOCKER.argv), timeout_s=30.0)
"""Whether the guard reaches Docker. It has lost the socket when Docker was restarted and the containers were not."""
PROVE = ("sh", "-c", f"python3 -c 'import sparkops.guard.daemon, sparkops.guard.replacing' && {DOCKER}")
READY = Command(
    ("docker", "exec", CONTAINER, "sh", "-c", f"python3 -m sparkops.guard.ask </dev/null && {DOCKER}"), timeout_s=30.0
)
"""Shows that the guard's door is open, without a question, and that it reaches Docker.

Not --interactive: an end of stdin that comes while the container is just starting can get lost in Docker.
"""
REPLACED = docker("update", "--restart=no", REPLACEMENT)
"""Lets the program that replaces a guard stay ended."""
PUT_ASIDE = docker("rename", CONTAINER, ASIDE)
"""Renames the stopped container, so that a new one can take its place."""
PUT_BACK = docker("rename", ASIDE, CONTAINER)
"""Restores the name of the container that was put aside."""
STOP = docker("stop", CONTAINER, timeout_s=STOP_S + 60.0)
"""Stops the guard by SIGTERM, and by SIGKILL after STOP_S seconds: its work may end at any point."""
RESTART = docker("restart", CONTAINER, timeout_s=STOP_S + 60.0)
"""Restarts the guard with new mounts."""
KEEP_RUNNING = docker("update", "--restart=always", CONTAINER)
"""Lets Docker start the guard again after a crash or reboot.

Not `unless-stopped`: when dockerd is killed, the next one stops the containers that lived on, and such a container
would stay down.
"""
STAY_STOPPED = docker("update", "--restart=no", CONTAINER)
"""Lets the guard stay stopped, also after a restart of Docker: two must not start at the next boot."""

# Root in the container owns the socket, so it needs no capability to use it. The socket alone is as good as root
# on the node, which is what whoever may use Docker there has anyway. NET_ADMIN is for nftables.
RIGHTS = (
    "--cap-drop=ALL",
    "--cap-add=NET_ADMIN",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--tmpfs=/tmp",
    f"--mount=type=bind,source={SOCKET},target={SOCKET}",
)


def run(image: str, inputs: str, node: str) -> Command:
    """Start the container from `image` (an ID) on the node of that name. After a reboot it starts by itself.

    The journals are in its volume, so the next guard continues where this one ended.
    """
    labels = {**image_labels(GUARD, inputs), NODE_LABEL: node}
    return docker(
        "run",
        "--detach",
        f"--name={CONTAINER}",
        *(f"--label={key}={value}" for key, value in labels.items()),
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


def ask_image(image: str) -> Command:
    """Ask an image, in a container of its own, whether its guard can be imported and reaches this node's Docker."""
    return docker("run", "--rm", "--network=none", *RIGHTS, image, *PROVE, timeout_s=120.0)


def check(image: str) -> Command:
    """Let a new guard's image read all that the guard of this node keeps. Fails with what it cannot read."""
    volume = f"--volume={VOLUME}:{STATE}:ro"
    options = ("--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", volume)
    return docker("run", *options, image, "python3", "-m", "sparkops.guard.check", timeout_s=120.0)


def replace(image: str, inputs: str, node: str) -> Command:
    """Start the program that lets a guard from `image` replace the one that runs (sparkops.guard.replacing).

    Docker starts it again, after a reboot as well, until it has ended the replacement.
    """
    program = ("python3", "-m", "sparkops.guard.replacing", image, inputs, node)
    options = (f"--name={REPLACEMENT}", "--network=none", "--restart=always", *RIGHTS, *BOUNDED_LOG)
    return docker("run", "--detach", *options, image, *program, timeout_s=120.0)
