"""`make swaps`: swaps in a row under load. No request may fail; how much slower answers get is printed.

On one machine everything shares its cores: a swap takes time from the engine that answers, whatever it swaps. So the
same swaps of another service, which has no load, are measured as well: what is left is the price of the switch itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from sparkops.operator.demo.traffic.generator import Traffic
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.shell import FleetError
from tests.real.program import Cli
from tests.real.service import GATEWAY, QUICK, Service, with_gateway

REST_S = 20.0
PIN_S = 0.5
OTHERS = 5
"""Swaps of the service without load."""
NODES = ("node-1", "node-2")


def main() -> int:
    """Swap to and fro between two nodes while requests and streams run. Returns 1 if anything failed."""
    options = _options()
    nodes = RealFleet.up(2)
    with tempfile.TemporaryDirectory(prefix="sparkops-swaps-") as home:
        cli = with_gateway(nodes, Path(home))
        swapped, other = (_service(cli, nodes, *arguments) for arguments in (("swaps", 9400), ("other", 9500)))
        try:
            for service in (swapped, other):
                service.begin(name="r0", node=NODES[-1])
            with (
                pinned(nodes) if options.pin else nullcontext(),
                swapped.load(rate=options.rate, streams=options.streams) as load,
            ):
                return _measure(swapped, other, load, options.count)
        finally:
            for service in (swapped, other):
                service.sweep()


@contextmanager
def pinned(nodes: RealFleet) -> Iterator[None]:
    """Keep the gateway on the first core and engines, those that start as well, on the second one."""
    nodes.node(GATEWAY).exec("docker", "update", "--cpuset-cpus=0", "sparkops-gateway")
    ended = threading.Event()
    thread = threading.Thread(target=_pin, args=(nodes, ended))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _pin(nodes: RealFleet, ended: threading.Event) -> None:
    pinned_engines: set[str] = set()
    while not ended.wait(PIN_S):
        for node in nodes.nodes:
            engines = node.exec("docker", "ps", "--quiet", "--filter", "label=sparkops.service").split()
            for engine in set(engines) - pinned_engines:
                with suppress(FleetError):  # it has ended meanwhile
                    node.exec("docker", "update", "--cpuset-cpus=1", engine)
                    pinned_engines.add(engine)


def _service(cli: Cli, nodes: RealFleet, name: str, port: int) -> Service:
    own = {"service": name, "serve.port": str(port), "swap.bake_s": "1", "swap.keep_old_s": "0"}
    return Service(cli, nodes, name=name, port=port, settings={**QUICK, **own})


def _measure(swapped: Service, other: Service, load: Traffic, count: int) -> int:
    load.wait_for(50, 60)
    began = time.monotonic()
    time.sleep(REST_S)
    rest = load.report((began, time.monotonic()))
    print(f"at rest: {rest}", flush=True)
    beside, failed_beside = _swap(other, load, OTHERS)
    during, failed = _swap(swapped, load, count)
    whole = load.stop().report()
    print(f"all: {whole}")
    print(f"{count - failed} of {count} swaps went well")
    print(f"p99 during a swap / p99 at rest: {during / rest.p99_s:.2f}")
    print(f"p99 during a swap / p99 during one of a service without load: {during / beside:.2f}")
    return int(bool(failed or failed_beside) or not whole.clean)


def _swap(service: Service, load: Traffic, count: int) -> tuple[float, int]:
    """The median of the load's p99 in seconds over so many swaps, and how many failed."""
    p99s_s, failed = [], 0
    for number in range(count):
        began = time.monotonic()
        ran = service.deploy("--node", NODES[number % 2], "--mode", "across", name=f"r{number + 1}")
        report = load.report((began, time.monotonic()))
        p99s_s.append(report.p99_s)
        failed += ran.code != 0
        print(f"{service.name} {number + 1:3}: exit {ran.code}, {ran.took_s:.1f} s, {report}", flush=True)
        if ran.code:
            print(ran.err, flush=True)
    return statistics.median(p99s_s), failed


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--rate", type=float, default=220.0, help="short requests per second")
    parser.add_argument("--pin", action="store_true", help="keep engines away from the gateway's core")
    parser.add_argument("--streams", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
