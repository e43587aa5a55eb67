"""Connect to the other ranks from inside their image. Piped to `python -` in a container of each rank.

Its argument is one JSON object: rank, addresses (of all ranks, in order), port, ports (further ones on which the engine
will listen) and patience_s. It prints one JSON object, and always ends by itself.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAUSE_S = 0.1
CALL_S = 2.0


def installed(package: str) -> str:
    """Return the version of a package, without the seconds of an import."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def taken(ports: list[int]) -> list[int]:
    """Return the ports on which another program listens."""
    used = []
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("0.0.0.0", port))
            except OSError:
                used.append(port)
    return used


def wait_for_others(arguments: dict, deadline: float) -> list[int]:
    """As rank 0, listen as the engine will, and return the ranks that connect. Any other caller is ignored."""
    head, *others = arguments["addresses"]
    ranks = {address: rank for rank, address in enumerate(others, 1)}
    met: list[int] = []
    with socket.create_server((head, arguments["port"])) as listener:
        while len(met) < len(others) and (remaining_s := deadline - time.monotonic()) > 0:
            listener.settimeout(remaining_s)
            try:
                caller, (address, _) = listener.accept()
            except TimeoutError:
                break
            with caller, suppress(OSError):
                rank = ranks.get(address)
                caller.settimeout(min(CALL_S, remaining_s))
                if rank not in (None, *met) and caller.recv(8) == str(rank).encode():
                    caller.sendall(b"0")
                    met.append(rank)
    return met


def call_head(arguments: dict, deadline: float) -> list[int]:
    """Connect to rank 0 from the address of this rank until it answers. Its container may start later."""
    addresses = arguments["addresses"]
    target, source = (addresses[0], arguments["port"]), (addresses[arguments["rank"]], 0)
    while True:
        timeout_s = min(CALL_S, max(PAUSE_S, deadline - time.monotonic()))
        try:
            with socket.create_connection(target, timeout_s, source_address=source) as head:
                head.sendall(str(arguments["rank"]).encode())
                return [int(head.recv(8))]
        except (OSError, ValueError):  # ValueError: rank 0 closed the connection without a reply
            if time.monotonic() + PAUSE_S > deadline:
                raise
            time.sleep(PAUSE_S)


def main() -> None:
    arguments = json.loads(sys.argv[1])
    report: dict[str, object] = {
        "ray": installed("ray"),
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "rdma": sorted(file.name for file in Path("/dev/infiniband").glob("*")),
        "taken": taken(arguments["ports"]),
        "met": [],
        "problem": "",
    }
    connect = call_head if arguments["rank"] else wait_for_others
    try:
        report["met"] = connect(arguments, time.monotonic() + arguments["patience_s"])
    except (OSError, ValueError) as error:
        report["problem"] = str(error)
    print(json.dumps(report))


main()
