"""TCP ports for the servers of tests."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

OURS = range(10_000, 32_000)
"""Below the ports of outgoing connections (32768 by default), one of which could be taken before a test listens."""


def free_port(address: str = "127.0.0.1") -> int:
    """Return a free port at an address of this machine. Raises OSError if there is none."""
    for port in random.sample(OURS, 100):
        with socket.socket() as tried, suppress(OSError):
            tried.bind((address, port))
            return port
    raise OSError(f"no free port at {address}")
