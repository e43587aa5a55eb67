"""`python -m sparkops.guard` is the guard itself, the container's first process."""

from __future__ import annotations

import os

from sparkops.guard.daemon import Daemon
from sparkops.guard.disk.state import State
from sparkops.node.agents.commands import SOCKET
from sparkops.node.local import LocalNode

Daemon(State(), LocalNode(os.environ.get("SPARKOPS_NODE", "here"), docker=SOCKET)).run()
