"""The guard's container: it keeps a node's journals, and ends what a deploy that is gone has begun."""

from __future__ import annotations

from sparkops.command import Command
from sparkops.commands import places
from sparkops.commands.docker import BOUNDED_LOG, docker
from sparkops.release import LABEL, image_labels
from sparkops.render.guard import NAME

CONTAINER = places.CONTAINER
VOLUME = "sparkops-state"
STATE = places.STATE
SOCKET = "/var/run/docker.sock"
BOOT_ID = "/run/boot_id"
"""Where the guard sees the id of its node's boot."""
NODE_LABEL = f"{LABEL}node"
PORT = 10843
"""Where guards of other nodes ask it who has the traffic. It answers with names of releases, and takes no orders."""
STOP_S = 10
ANSWER = ("python3", "-m", "sparkops.guard.serve")

SERVE = Command(("docker", "exec", "--interactive", CONTAINER, *ANSWER), timeout_s=30.0)
"""A stream of questions and answers."""
DOCKER = Command(("docker", "version", "--format={{.Server.Version}}"), timeout_s=10.0)
"""Whether Docker answers; asked by the guard itself."""
FILTER = Command(("docker", "exec", CONTAINER, "python3", "-m", "sparkops.guard.filter"), timeout_s=30.0, changes=True)
"""Closes the ports of engines and ranks to all but the gateway and the other ranks, as labels of containers require."""
REACHES = Command(("docker", "exec", CONTAINER, *DOCKER.argv), timeout_s=30.0)
"""Whether the guard reaches Docker. It has lost the socket when Docker was restarted and the containers were not."""
PROVE = ("sh", "-c", f"{' '.join(ANSWER)} </dev/null && python3 -c 'import sparkops.guard.daemon' && {DOCKER}")
READY = Command(("docker", "exec", CONTAINER, *PROVE), timeout_s=30.0)
"""Without a question what answers ends well, and has shown that the guard is there.

Not --interactive: an end of stdin that comes while the container is just starting can get lost in Docker.
"""

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
    labels = {**image_labels(NAME, inputs), NODE_LABEL: node}
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
        f"--env=SPARKOPS_NODE={node}",
        f"--stop-timeout={STOP_S}",
        *BOUNDED_LOG,
        image,
        timeout_s=120.0,
    )


def ask_image(image: str) -> Command:
    """Ask an image, in a container of its own, whether its guard can be imported and reaches this node's Docker."""
    return docker("run", "--rm", "--network=none", *RIGHTS, image, *PROVE, timeout_s=120.0)


def stop() -> Command:
    """SIGTERM, and SIGKILL after STOP_S seconds: what the guard does may be cut off anywhere."""
    return docker("stop", CONTAINER, timeout_s=STOP_S + 60.0)


def restart() -> Command:
    """Stop and start: its mounts are made anew."""
    return docker("restart", CONTAINER, timeout_s=STOP_S + 60.0)


def remove() -> Command:
    """Remove the stopped container. Its volume stays."""
    return docker("rm", CONTAINER)
