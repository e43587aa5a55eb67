"""`make swaps`: swaps in a row under load. No request may fail; how much slower answers get is printed."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.fleet.fleet import Fleet as RealFleet
from tests.load import Load
from tests.real.program import Cli
from tests.real.service import GATEWAY, QUICK, Service, write_inventory

REST_S = 20.0
NODES = ("node-1", "node-2")


def main() -> int:
    """Swap to and fro between two nodes while requests and streams run. Returns 1 if anything failed."""
    options = _options()
    nodes = RealFleet.up(2)
    with tempfile.TemporaryDirectory(prefix="sparkops-swaps-") as home:
        inventory = write_inventory(nodes, Path(home), lambda data: data.update(gateway={"node": GATEWAY}))
        cli = Cli(inventory, Path(home))
        settings = {**QUICK, "swap.bake_s": "1", "swap.keep_blue_s": "0", "service": "swaps", "serve.port": "9400"}
        service = Service(cli, nodes, name="swaps", port=9400, settings=settings)
        built = cli("build", "stand-in")
        if built.code:
            sys.exit(built.err)
        try:
            service.begin(name="r0", node=NODES[-1])
            with service.load(rate=options.rate, streams=options.streams) as load:
                return _swap(service, load, options.count)
        finally:
            service.sweep()


def _swap(service: Service, load: Load, count: int) -> int:
    load.wait_for(50, 60)
    began = time.monotonic()
    time.sleep(REST_S)
    rest = load.report((began, time.monotonic()))
    print(f"at rest: {rest}", flush=True)
    during, failed = [], 0
    for number in range(count):
        began = time.monotonic()
        done = service.deploy("--node", NODES[number % 2], "--mode", "across", name=f"r{number + 1}")
        during.append(load.report((began, time.monotonic())))
        failed += done.code != 0
        print(f"{number + 1:3}: exit {done.code}, {done.took_s:.1f} s, {during[-1]}", flush=True)
        if done.code:
            print(done.err, flush=True)
    whole = load.stop().report()
    ratio = statistics.median(each.p99_s for each in during) / rest.p99_s
    print(f"all: {whole}")
    print(f"{count - failed} of {count} swaps went well; p99 during a swap / p99 at rest: {ratio:.2f} (median)")
    return int(bool(failed) or not whole.clean)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--rate", type=float, default=220.0, help="short requests per second")
    parser.add_argument("--streams", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
