"""`sparkops status` beside one cold `ssh NODE docker ps`, pyinfra and plain paramiko, in turns of one run.

On two nodes: empty, with an idle service, and under load; and on 32 SSH endpoints of two empty nodes.
`python -m tests.lab.bench_status` prints a table; docs/evidence/status.md keeps one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from sparkops.config import inventory
from tests.checkpoints import ssh_argv
from tests.fleet.fleet import Fleet as RealFleet
from tests.lab.measuring import BIN, measure, run
from tests.real.service import QUICK, Service, with_gateway

LIMIT, MANY_LIMIT = 2.0, 4.0
"""Times one cold `ssh NODE docker ps`; times `status` on two empty nodes, for MANY of them."""
MANY, FIRST_PORT = 32, 2201
SSH, STATUS, STATUS_MANY = "ssh NODE docker ps", "sparkops status, two nodes", f"sparkops status, {MANY} nodes"
PARAMIKO, PYINFRA = "plain paramiko, two nodes", "pyinfra, two nodes"
Cases = dict[str, Callable[[], float]]
OWN = {"service": "bench", "serve.port": "9400", "swap.bake_s": "1", "env.STAND_IN_TOK_S": "50"}


def promises() -> dict[str, tuple[float, float]]:
    """Print what the calls take. Return the measured ratio and its limit by name."""
    nodes = RealFleet.up(2)
    with tempfile.TemporaryDirectory(prefix="sparkops-bench-") as home:
        empty(nodes)
        cases = two_nodes(nodes, nodes.inventory, Path(home))
        with endpoints(nodes, Path(home)) as many:
            rows = measured("empty", {**cases, STATUS_MANY: many})
        ratios = {f"{STATUS_MANY} / two": (rows[STATUS_MANY] / rows[STATUS], MANY_LIMIT)}
        ratios[f"{STATUS}, empty / {SSH}"] = (rows[STATUS] / rows[SSH], LIMIT)
        cli = with_gateway(nodes, Path(home))
        service = Service(cli, nodes, name="bench", port=9400, settings={**QUICK, **OWN})
        service.begin()
        cases = two_nodes(nodes, cli.inventory, Path(home))
        rows = measured("one idle service", cases)
        ratios[f"{STATUS}, idle service / {SSH}"] = (rows[STATUS] / rows[SSH], LIMIT)
        with service.load(rate=10, streams=4) as load:
            load.wait_for(10, 60)
            rows = measured("under load", cases)
        ratios[f"{STATUS}, under load / {SSH}"] = (rows[STATUS] / rows[SSH], LIMIT)
        service.sweep()
    return ratios


def measured(title: str, cases: Cases) -> dict[str, float]:
    """Print a row of a table for each case. Return the seconds."""
    rows = measure(cases)
    for name, seconds in rows.items():
        print(f"| {title} | {name} | {seconds * 1000:.0f} | {seconds / rows[SSH]:.2f} |", flush=True)
    return rows


def two_nodes(nodes: RealFleet, file: Path, home: Path) -> Cases:
    """Return the calls on two nodes. Without pyinfra, which is installed for the run, its row is absent and named."""
    fleet = inventory.load(file)
    names, addresses = list(fleet.nodes)[:2], [node.address for node in nodes.nodes[:2]]
    ssh = [*ssh_argv(fleet, names[0], "ssh"), "docker", "ps"]
    plain = [sys.executable, "-m", "tests.lab.plain_paramiko", str(nodes.ssh_key), *addresses]
    cases: Cases = {
        SSH: lambda: run(ssh),
        PARAMIKO: lambda: run(plain),
        STATUS: lambda: run([str(BIN / "sparkops"), "--inventory", str(file), "status"]),
    }
    if program := pyinfra(home):
        known = f"ssh_known_hosts_file={home / 'accepted'}"
        data = ["--data", "ssh_user=ops", "--data", f"ssh_key={nodes.ssh_key}", "--data", known]
        call = [program, "-y", ",".join(addresses), *data, "--data", "ssh_strict_host_key_checking=off"]
        cases[PYINFRA] = lambda: run([*call, "exec", "--", "docker", "ps"])
    return cases


def pyinfra(home: Path) -> str:
    """Return pyinfra's program, installed into an environment of this run; empty, and printed, where it cannot be."""
    program = home / "pyinfra/bin/pyinfra"
    if not program.exists():
        uv = [str(BIN / "uv"), "--quiet"]
        subprocess.run([*uv, "venv", str(home / "pyinfra")], check=True)
        target = ["--python", str(home / "pyinfra/bin/python"), "pyinfra"]
        ran = subprocess.run([*uv, "pip", "install", *target], check=False, capture_output=True, text=True)
        if ran.returncode:
            print(f"pyinfra is missing: {ran.stderr.strip()[:200]}")
            return ""
    return str(program)


def empty(nodes: RealFleet) -> None:
    """Remove what sparkops has on the nodes: services, gateway and guards."""
    for node in nodes.nodes:
        node.exec("sh", "-c", "docker ps -aq --filter label=sparkops.version | xargs -r docker rm -f")
        node.exec("rm", "-rf", "/run/sparkops/status.sock")


@contextmanager
def endpoints(nodes: RealFleet, home: Path) -> Iterator[Callable[[], float]]:
    """Give `status` MANY nodes: SSH servers on ports of their own of two nodes, so each has its own handshake."""
    ports = {f"n{number:02}": (nodes.nodes[number % 2], FIRST_PORT + number) for number in range(MANY)}
    for node, port in ports.values():
        node.exec("/usr/sbin/sshd", "-p", str(port), "-o", f"PidFile=/run/bench-{port}.pid")
    file, keys = home / "many.yaml", home / "many.known_hosts"
    keys.write_text("".join(f"{name} {node.host_key}\n" for name, (node, _) in ports.items()))
    data = yaml.safe_load(nodes.inventory.read_text())
    data["defaults"]["ssh_key"], data["known_hosts"] = str(nodes.ssh_key), str(keys)
    data["nodes"] = {name: {"address": node.address, "port": port} for name, (node, port) in ports.items()}
    file.write_text(yaml.safe_dump(data))
    try:
        yield lambda: run([str(BIN / "sparkops"), "--inventory", str(file), "status"])
    finally:
        for node, port in ports.values():
            node.exec("sh", "-c", f"kill $(cat /run/bench-{port}.pid)")


def main() -> None:
    """Print the table and the ratios."""
    print("| fleet | call | ms | times ssh |\n| --- | --- | --- | --- |")
    for name, (ratio, limit) in promises().items():
        print(f"{ratio:.2f}  {name} (at most {limit:g})")


if __name__ == "__main__":
    main()
