"""Copies of an image from node to node, next to `docker save | ssh | docker load` of the same in the same run."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sparkops.command import quote
from sparkops.config.inventory import Fleet
from sparkops.node.progress import silent
from sparkops.operator.build.images import distribute
from sparkops.operator.build.images.delivery import CopiedImage
from sparkops.operator.fleet.connected import connect
from tests import image_layers
from tests.checkpoints import ssh_argv
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.service import Service, with_gateway

ROUNDS = 3
TAG, LARGE, SMALL = "sparkops/bench:0123456789ab", 500_000_000, 1_000_000
SOURCE, *TARGETS = ("node-1", "node-2", "node-3")


def measure(nodes: RealFleet, fleet: Fleet) -> dict[str, tuple[float, float]]:
    """Print what was measured. Returns each promise with what was found and its limit."""
    with tempfile.TemporaryDirectory(prefix="sparkops-bench-") as home:
        service = Service(with_gateway(nodes, Path(home), SOURCE), nodes)
        service.begin(node=SOURCE)  # as on any node that serves, a guard is there
        try:
            return _measure(nodes, fleet)
        finally:
            service.sweep()


def _measure(nodes: RealFleet, fleet: Fleet) -> dict[str, tuple[float, float]]:
    source = nodes.node(SOURCE)
    image_layers.build(source, TAG, LARGE)
    took: dict[str, list[float]] = {}

    def timed(name: str, act: Callable[[], Mapping[str, CopiedImage]]) -> Mapping[str, CopiedImage]:
        began = time.perf_counter()
        copies = act()
        took.setdefault(name, []).append(time.perf_counter() - began)
        return copies

    try:
        for _ in range(ROUNDS):
            _forget(nodes)
            timed("full copy to one node", lambda: _copy(fleet, TARGETS[:1]))
            _forget(nodes)
            timed("full copy to two nodes", lambda: _copy(fleet, TARGETS))
            image_layers.change(source, TAG, SMALL)
            changed = timed("copy of a changed last layer", lambda: _copy(fleet, TARGETS[:1]))[TARGETS[0]]
            image_layers.change(source, TAG, SMALL)
            timed("docker save | ssh | docker load of it", lambda: _pipe(fleet))
    finally:
        _forget(nodes)
        image_layers.forget(source, TAG)
    median = {name: statistics.median(took_s) for name, took_s in took.items()}
    for name, seconds in median.items():
        print(f"{seconds * 1000:8.0f} ms  {name}")
    one, two, part, piped = median.values()
    return {
        "bytes sent of an image whose last layer changed / its bytes": (changed.sent / changed.size, 0.01),
        "time for it / docker save | ssh | docker load": (part / piped, 1 / 3),
        "full copy to two nodes / to one": (two / one, 1.3),
    }


def _copy(fleet: Fleet, targets: list[str]) -> Mapping[str, CopiedImage]:
    with connect(fleet, [SOURCE, *targets]) as connected:
        return distribute.copy(connected, TAG, SOURCE, silent)


def _pipe(fleet: Fleet) -> Mapping[str, CopiedImage]:
    give, take = (quote(*ssh_argv(fleet, name, "ssh")) for name in (SOURCE, TARGETS[0]))
    pipe = f"{give} docker save {TAG} | {take} docker load"
    subprocess.run(("bash", "-o", "pipefail", "-c", pipe), check=True, capture_output=True)
    return {}


def _forget(nodes: RealFleet) -> None:
    for name in TARGETS:
        image_layers.forget(nodes.node(name), TAG)
