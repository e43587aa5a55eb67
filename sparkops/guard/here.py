"""Where this guard is: its node and its files, as its container's environment names them."""

from __future__ import annotations

import os
from pathlib import Path

from sparkops.guard.state import DIRECTORY, State
from sparkops.nodes.local import LocalNode


def node() -> LocalNode:
    """The guard's node."""
    return LocalNode(os.environ.get("SPARKOPS_NODE", "here"))


def state() -> State:
    """The guard's files."""
    return State(Path(os.environ.get("SPARKOPS_STATE", DIRECTORY)))
