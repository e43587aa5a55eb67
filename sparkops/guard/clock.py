"""The clock of a node: boot id and seconds since that boot, so that no laptop's clock and no time server matters."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

BOOT_IDS = (Path("/run/boot_id"), Path("/proc/sys/kernel/random/boot_id"))  # the node's own comes first


@dataclass(frozen=True, slots=True)
class NodeClock:
    """One moment of a node: seconds since its boot (CLOCK_BOOTTIME) and the id of that boot."""

    now_s: float
    boot: str


def read_clock() -> NodeClock:
    """Read this node's clock. Raises OSError."""
    boot = next(file for file in BOOT_IDS if file.exists()).read_text().strip()
    return NodeClock(time.clock_gettime(time.CLOCK_BOOTTIME), boot)
