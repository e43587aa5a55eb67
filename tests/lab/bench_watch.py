"""What the watch costs: the guard of a node with an engine that serves idle, next to the same guard with none."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.service import GATEWAY, Service, with_gateway

WATCHED = "node-2"
"""Neither gateway nor leader: its guard watches the engine and does nothing else."""
MEASURED_S = 180.0
"""Three light questions."""
GROUPS = "/sys/fs/cgroup"
CPU = (
    f"awk '$1 == \"usage_usec\" {{print $2 / 1e6}}' {GROUPS}/cpu.stat 2>/dev/null"
    f" || awk '{{print $1 / 1e9}}' {GROUPS}/cpuacct/cpuacct.usage"
)
"""Prints the processor seconds of a container: cgroup v2, cgroup v1."""
MEMORY = (
    f"awk '$1 == \"anon\" {{print $2 / 2^20}}' {GROUPS}/memory.stat 2>/dev/null"
    f" || awk '$1 == \"total_rss\" {{print $2 / 2^20}}' {GROUPS}/memory/memory.stat"
)
"""Prints the MiB of a container, page cache excepted."""
MOST_SHARE = 0.01


def measure(nodes: RealFleet) -> dict[str, tuple[float, float]]:
    """Print what was measured. Returns each promise with what was found and its limit."""
    node = nodes.node(WATCHED)
    with tempfile.TemporaryDirectory(prefix="sparkops-bench-") as home:
        service = Service(with_gateway(nodes, Path(home), GATEWAY), nodes)
        try:
            service.begin(node=WATCHED)
            watching, mib = _share(node), _read(node, MEMORY)
            stopped = service.cli("stop", service.name)
            assert stopped.code == 0, stopped.err
            idle = _share(node)
        finally:
            service.sweep()
    print(f"{watching:8.2%}     of a core: guard with one engine that serves; {idle:.2%} with none; {mib:.0f} MiB")
    return {"watch of one engine, share of a core": (watching - idle, MOST_SHARE)}


def _share(node: FleetNode) -> float:
    """Return the share of a core that the guard of a node takes."""
    time.sleep(20)  # it looks more often after a change
    before, began_s = _read(node, CPU), time.monotonic()
    time.sleep(MEASURED_S)
    return (_read(node, CPU) - before) / (time.monotonic() - began_s)


def _read(node: FleetNode, script: str) -> float:
    return float(node.exec("docker", "exec", "sparkops-guard", "sh", "-c", script))
