"""An image of random bytes on a node, in two layers: a large one, and a small one that can be changed."""

from __future__ import annotations

from sparkops.config.release import trust_mark
from tests.fleet.node import FleetNode

BASE = "debian:bookworm-slim"


def build(node: FleetNode, tag: str, size: int) -> str:
    """Build it anew with a large layer of that many bytes. Returns its ID."""
    _layer(node, BASE, f"{tag}-large", size)
    return change(node, tag, size // 1000)


def change(node: FleetNode, tag: str, size: int) -> str:
    """Build it with other bytes in its last layer, that many. Returns its ID."""
    return trust(node, tag, _layer(node, f"{tag}-large", tag, size))


def trust(node: FleetNode, tag: str, image: str) -> str:
    """Mark it as a build of sparkops does. Returns its ID."""
    node.exec("docker", "volume", "create", trust_mark(tag, image))
    return image


def forget(node: FleetNode, tag: str) -> None:
    """Remove it, and what it was made of."""
    node.exec("sh", "-c", f"docker rmi -f {tag} {tag}-large >/dev/null 2>&1; docker image prune -f >/dev/null")


def _layer(node: FleetNode, base: str, tag: str, size: int) -> str:
    lines = f"FROM {base}\nRUN head -c {size} /dev/urandom > /$(head -c 8 /dev/urandom | md5sum | cut -c-8)\n"
    node.exec("docker", "build", "--quiet", "--no-cache", f"--tag={tag}", "-", stdin=lines.encode())
    return node.exec("docker", "image", "inspect", "--format", "{{.Id}}", tag).strip()
