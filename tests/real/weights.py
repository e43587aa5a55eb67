"""Directories of weights on real nodes that belong to one test: their place, what lies there, and their end."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import Ran

OURS = "test-models"
"""Where these tests work, under model_dir; everything whose name begins so is removed before and after."""
PATIENCE_S = 300.0


def sweep(nodes: RealFleet) -> None:
    """Remove all of ours."""
    for node in nodes.nodes:
        node.exec("sh", "-c", f"rm -rf /srv/models/{OURS}*")


def digest(node: FleetNode, path: str = OURS) -> str:
    """One hash over the files of a directory on a node, without those that a hub's program keeps."""
    script = "cd /srv/models/$1 && find . -type f -not -path './.cache/*' | sort | xargs sha256sum | sha256sum"
    return node.exec("sh", "-c", script, "sh", path)


def list_ours(node: FleetNode) -> list[str]:
    """What is there of ours."""
    return [name for name in node.exec("ls", "/srv/models").split() if name.startswith(OURS)]


def soon(check: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Whether it becomes true before patience ends."""
    end = time.monotonic() + patience_s
    while not check():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def sent(ran: Ran, node: str = "node-2") -> int:
    """The bytes that a copy sent to a node."""
    assert ran.code == 0, ran.err
    return int(ran.json["nodes"][node]["sent"])
