"""A real fleet on one machine: containers that are nodes, each with sshd and a Docker Engine.

    python -m tests.fleet up --nodes 2
    python -m tests.fleet down

Tests take it by `Fleet.up(2)`, and do to its nodes what happens to real ones.
"""

from .fleet import Fleet
from .node import FleetNode
from .shell import FleetError

__all__ = ["Fleet", "FleetError", "FleetNode"]
