"""The surroundings of a guard's process: the directory of its files, the node's clock and the log of the container."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from sparkops.node.docker.places import STATE
from sparkops.redact import redacted

BOOT_IDS = (Path("/run/boot_id"), Path("/proc/sys/kernel/random/boot_id"))  # the node's own comes first


def state_directory() -> Path:
    return Path(os.environ.get("SPARKOPS_STATE", f"{STATE}/v2"))


@dataclass(frozen=True, slots=True)
class NodeClock:
    """Seconds since a node's boot (CLOCK_BOOTTIME) and the id of that boot: no other clock can change them."""

    now_s: float
    boot: str


def read_clock() -> NodeClock:
    """Read this node's clock. Raises OSError."""
    boot = next(file for file in BOOT_IDS if file.exists()).read_text().strip()
    return NodeClock(time.clock_gettime(time.CLOCK_BOOTTIME), boot)


def log(text: str) -> None:
    """Write one line with its time (UTC), without credentials."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {redacted(text)}\n")
    sys.stderr.flush()
