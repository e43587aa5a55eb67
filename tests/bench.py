"""`make bench`: ratios measured side by side in one run. Alone, a figure says little; next to another it does."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sparkops.config import inventory
from sparkops.config.inventory import Fleet
from tests import bench_copies
from tests.checkpoints import ssh_argv
from tests.fleet.fleet import Fleet as RealFleet

ROUNDS = 7
BIN = Path(sys.executable).parent
RECIPE = "recipes/tiny-qwen3-cpu.yaml"


def main() -> int:
    """Measure, print, and fail where a promise does not hold."""
    nodes = RealFleet.up(3)
    fleet = inventory.load(nodes.inventory)
    promises = {**verbs(nodes, fleet), **bench_copies.measure(nodes, fleet)}
    for name, (found, limit) in promises.items():
        print(f"{found:8.3f}     {name} (at most {limit:.3g}): {'held' if found <= limit else 'BROKEN'}")
    return int(any(found > limit for found, limit in promises.values()))


def verbs(nodes: RealFleet, fleet: Fleet) -> dict[str, tuple[float, float]]:
    """Print how long verbs take. Returns each promise with what was found and its limit."""
    sparkops = [str(BIN / "sparkops"), "--inventory", str(nodes.inventory)]
    ssh = [[*ssh_argv(fleet, name, "ssh"), "docker", "ps"] for name in fleet.nodes]
    rows = measure(
        {
            "python -c pass": lambda: run([sys.executable, "-c", "pass"]),
            "import typer": lambda: run([sys.executable, "-c", "import typer"]),
            "sparkops --help": lambda: run([str(BIN / "sparkops"), "--help"]),
            "ssh NODE docker ps, one node": lambda: run(ssh[0]),
            "ssh NODE docker ps, three nodes in turn": lambda: run(*ssh),
            "sparkops status, three nodes": lambda: run([*sparkops, "status"]),
            "sparkops build, nothing to do": lambda: run([*sparkops, "build", RECIPE]),
        }
    )
    for name, seconds in rows.items():
        print(f"{seconds * 1000:8.0f} ms  {name}")
    return {
        "sparkops --help / import typer": (rows["sparkops --help"] / rows["import typer"], 1.8),
        "sparkops build, nothing to do, in s": (rows["sparkops build, nothing to do"], 3.0),
    }


def measure(cases: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each case in seconds. The cases take turns, so a busy moment hits all of them."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            began = time.perf_counter()
            case()
            taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in taken.items()}


def run(*commands: list[str]) -> None:
    """Run one after the other, quietly; a failure ends the bench."""
    for argv in commands:
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
