"""`make bench`: ratios measured side by side in one run. Alone, a figure says little; next to another it does."""

from __future__ import annotations

import sys

from sparkops.config import inventory
from tests.fleet.fleet import Fleet as RealFleet
from tests.lab import (
    bench_comparison,
    bench_copies,
    bench_gateway,
    bench_many,
    bench_start,
    bench_status,
    bench_text,
    bench_watch,
)
from tests.lab.measuring import BIN, measure, run

RECIPE = "recipes/tiny-qwen3-cpu.yaml"


def main() -> int:
    """Measure, print, and fail where a promise does not hold."""
    promises = {**bench_start.promises(), **bench_status.promises(), **bench_text.promises()}
    promises |= {**bench_many.promises(), **bench_comparison.promises()}
    nodes = RealFleet.up(3)
    fleet = inventory.load(nodes.inventory)
    promises |= {**verbs(nodes), **bench_copies.measure(nodes, fleet), **bench_gateway.measure(nodes)}
    promises |= bench_watch.measure(nodes)
    for name, (value, limit) in promises.items():
        print(f"{value:8.3f}     {name} (at most {limit:.3g}): {'held' if value <= limit else 'BROKEN'}")
    return int(any(value > limit for value, limit in promises.values()))


def verbs(nodes: RealFleet) -> dict[str, tuple[float, float]]:
    """Print how long verbs take. Returns each promise with what was found and its limit.

    `build` and `status` both ask each node once; `build` also reads and hashes what the image is made of.
    """
    sparkops = [str(BIN / "sparkops"), "--inventory", str(nodes.inventory)]
    name, status = "sparkops build, nothing to do", "sparkops status"
    rows = measure({status: lambda: run([*sparkops, "status"]), name: lambda: run([*sparkops, "build", RECIPE])})
    for verb, seconds in rows.items():
        print(f"{seconds * 1000:8.0f} ms  {verb}")
    return {f"{name}, in s": (rows[name], 3.0), f"{name} / {status}": (rows[name] / rows[status], 4.0)}


if __name__ == "__main__":
    sys.exit(main())
