"""Where this guard is: its node and its journals, as its container's environment names them."""

from __future__ import annotations

import os
from pathlib import Path

from sparkops.guard.store import DIRECTORY, Store
from sparkops.nodes.local import LocalNode


def node() -> LocalNode:
    """The guard's node."""
    return LocalNode(os.environ.get("SPARKOPS_NODE", "here"))


def store() -> Store:
    """The guard's journals."""
    return Store(Path(os.environ.get("SPARKOPS_STATE", DIRECTORY)))
