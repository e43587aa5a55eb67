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
RESIDENT = """\
import ctypes, mmap, os, sys
libc, pages = ctypes.CDLL(None), 0
for place, _, names in os.walk(sys.argv[1]):
    for path in (os.path.join(place, name) for name in names):
        size = os.stat(path).st_size
        if size == 0:
            continue
        with open(path, "rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as view:
            here = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
            start = ctypes.c_char.from_buffer(view)
            assert libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), here) == 0
            del start
        pages += sum(page & 1 for page in here)
print(pages * mmap.PAGESIZE)
"""
"""Prints the bytes of the files in a directory that are in the page cache, by mincore(2)."""


def sweep(nodes: RealFleet) -> None:
    """Remove all of ours."""
    for node in nodes.nodes:
        node.exec("sh", "-c", f"rm -rf /srv/models/{OURS}*")


def digest(node: FleetNode, path: str = OURS) -> str:
    """One hash over the files of a directory on a node, without those that a hub's program keeps."""
    script = "cd /srv/models/$1 && find . -type f -not -path './.cache/*' | sort | xargs sha256sum | sha256sum"
    return node.exec("sh", "-c", script, "sh", path)


def resident(node: FleetNode, path: str) -> int:
    """The bytes below model_dir/`path` that the node's page cache has."""
    return int(node.exec("python3", "-c", RESIDENT, f"/srv/models/{path}"))


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
