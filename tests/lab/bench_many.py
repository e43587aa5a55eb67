"""`status`, `plan` and the preparation of a deploy on 16 nodes beside two, without delay and with 200 ms of it.

Two kinds of endpoints on this machine, each behind a proxy of its own (delays.py), which delays each direction by half
of DELAY_S and counts connections and round trips:

- `sshd`: OpenSSH on ports of two nodes of the fleet, with their Docker, without guards: `status`, and `plan` of a first
  deploy.
- `guards`: SSH servers of this process with scripted Docker, guards and gateway (tests/fleet_unit/endpoints.py):
  `status`, `plan`, and `deploy --detach`, all that a client does until the leader has accepted its intent.

`python -m tests.lab.bench_many` prints a table; docs/evidence/status.md keeps one.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

from sparkops.operator.build.gateway.image import Service
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet_unit import endpoints as scripted
from tests.fleet_unit.endpoints import Endpoint
from tests.lab.bench_status import empty
from tests.lab.delays import Proxy, proxies
from tests.lab.measuring import BIN, ENVIRONMENT

FEW, MANY = 2, 16
DELAY_S = 0.2
ROUNDS = 3
CPU_LIMIT, WALL_LIMIT = 8.0, 2.0
"""Times the processor time on FEW nodes; times the wall time with the delay."""
FIRST_PORT = 2301
PORT = 9110
RELEASE = ["stand-in", "--set", f"serve.port={PORT}", "--set", "serve.replicas=all"]
STATUS, PLAN, DEPLOY = ["status"], ["plan", *RELEASE], ["deploy", *RELEASE, "--detach"]


@dataclass
class Taken:
    """The figures of one verb on one fleet. `forget` lets the endpoints count from 0."""

    argv: list[str]
    ways: Mapping[str, Proxy]
    forget: Callable[[], None]
    wall_s: dict[float, list[float]] = field(default_factory=dict)
    cpu_s: list[float] = field(default_factory=list)
    trips: list[int] = field(default_factory=list)
    connections: int = 0

    def measure(self, delay_s: float) -> None:
        """Run the verb once. Raises CalledProcessError."""
        self.forget()
        for way in self.ways.values():
            way.forget(delay_s)
        began = time.perf_counter()
        process = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        _, status, used = os.wait4(process.pid, 0)
        self.wall_s.setdefault(delay_s, []).append(time.perf_counter() - began)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, self.argv)
        self.connections = max(way.connections for way in self.ways.values())
        if delay_s:  # without it, what waits and what does not is a matter of chance
            self.trips.append(max(way.trips for way in self.ways.values()))
        else:
            self.cpu_s.append(used.ru_utime + used.ru_stime)

    def wall(self, delay_s: float) -> float:
        return statistics.median(self.wall_s[delay_s])


def promises() -> dict[str, tuple[float, float]]:
    """Print what the verbs take. Return each measured ratio and its limit by name."""
    print("| endpoints | verb | nodes | connections | round trips | processor ms | ms | ms with 200 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory(prefix="sparkops-bench-") as home:
        for kind, serve, verbs in (("sshd", _sshd, [STATUS, PLAN]), ("guards", _guards, [STATUS, PLAN, DEPLOY])):
            with serve(Path(home)) as fleets:
                for argv in verbs:
                    taken = {count: _taken(fleets[count], argv) for count in (FEW, MANY)}
                    for delay_s in (*[0.0] * ROUNDS, DELAY_S):
                        for item in taken.values():
                            item.measure(delay_s)
                    ratios |= _ratios(kind, argv[0], taken)
    return ratios


def _ratios(kind: str, verb: str, taken: Mapping[int, Taken]) -> dict[str, tuple[float, float]]:
    """Print two rows, and return what is promised of them."""
    for count, item in taken.items():
        figures = [statistics.median(item.cpu_s), item.wall(0.0), item.wall(DELAY_S)]
        words = [
            kind,
            verb,
            count,
            item.connections,
            statistics.median(item.trips),
            *(f"{s * 1000:.0f}" for s in figures),
        ]
        print(f"| {' | '.join(map(str, words))} |", flush=True)
    few, many = taken[FEW], taken[MANY]
    name = f"{verb}, {MANY} nodes / {FEW}, {kind}"
    return {
        f"{name}: connections of a node": (many.connections / few.connections, 1.0),
        f"{name}: round trips of a node, more": (min(many.trips) - min(few.trips), 1.0),
        f"{name}: processor time": (statistics.median(many.cpu_s) / statistics.median(few.cpu_s), CPU_LIMIT),
        f"{name}: time with {DELAY_S * 1000:.0f} ms": (many.wall(DELAY_S) / few.wall(DELAY_S), WALL_LIMIT),
    }


@dataclass(frozen=True)
class Served:
    """A fleet behind proxies: its inventory, and how its endpoints begin anew."""

    inventory: Path
    ways: Mapping[str, Proxy]
    forget: Callable[[], None] = lambda: None


def _taken(served: Served, argv: list[str]) -> Taken:
    call = [str(BIN / "sparkops"), "--inventory", str(served.inventory), *argv]
    return Taken(call, served.ways, served.forget)


@contextmanager
def _sshd(home: Path) -> Iterator[dict[int, Served]]:
    """Serve MANY ports of two nodes that have the image and nothing else of sparkops. FEW are one of each."""
    nodes = RealFleet.up(2)
    empty(nodes)
    build = [str(BIN / "sparkops"), "--inventory", str(nodes.inventory), "build", RELEASE[0]]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    places = {f"n{number + 1}": (nodes.nodes[number % 2], FIRST_PORT + number) for number in range(MANY)}
    for node, port in places.values():
        node.exec("/usr/sbin/sshd", "-p", str(port), "-o", f"PidFile=/run/bench-{port}.pid")
    try:
        with proxies({name: (node.address, port) for name, (node, port) in places.items()}) as ways:
            yield {
                count: _of_nodes(home / f"sshd-{count}", nodes, dict([*ways.items()][:count])) for count in (FEW, MANY)
            }
    finally:
        for node, port in places.values():
            node.exec("sh", "-c", f"kill $(cat /run/bench-{port}.pid)")


def _of_nodes(home: Path, nodes: RealFleet, ways: Mapping[str, Proxy]) -> Served:
    home.mkdir()
    keys = [nodes.nodes[number % 2].host_key for number in range(len(ways))]
    (home / "known_hosts").write_text("".join(f"{name} {key}\n" for name, key in zip(ways, keys, strict=True)))
    data = yaml.safe_load(nodes.inventory.read_text())
    data["defaults"]["ssh_key"], data["gateway"]["node"] = str(nodes.ssh_key), next(iter(ways))
    data["nodes"] = {name: {"address": "127.0.0.1", "port": way.port} for name, way in ways.items()}
    (home / "inventory.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return Served(home / "inventory.yaml", ways)


@contextmanager
def _guards(home: Path) -> Iterator[dict[int, Served]]:
    """Serve a scripted fleet of FEW nodes and one of MANY."""
    service = Service("stand-in", PORT, ())
    with ExitStack() as stack:
        fleets: dict[int, Served] = {}
        for count in (FEW, MANY):
            known = stack.enter_context(scripted.serve(home / f"guards-{count}", count, service))
            ways = stack.enter_context(proxies({name: ("127.0.0.1", it.server.port) for name, it in known.items()}))
            file = home / f"guards-{count}/inventory.yaml"
            scripted.write_inventory(file, {name: way.port for name, way in ways.items()})
            fleets[count] = Served(file, ways, partial(_forget, known))
        yield fleets


def _forget(known: Mapping[str, Endpoint]) -> None:
    for endpoint in known.values():
        endpoint.forget()


def main() -> None:
    """Print the table and the ratios."""
    for name, (ratio, limit) in promises().items():
        print(f"{ratio:.2f}  {name} (at most {limit:g})")


if __name__ == "__main__":
    main()
