"""Meet the other ranks from inside the image that they will run. Piped to `python -` in a container of each rank.

Its argument is one JSON object: rank, ranks, address (its own), head (that of rank 0), port, ports (what it will listen
on besides) and patience_s. It prints one JSON object, and always ends by itself.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PAUSE_S = 0.1
CALL_S = 2.0


def installed(package: str) -> str:
    """The version, without importing it: that would take seconds."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def taken(ports: list[int]) -> list[int]:
    """The ports that somebody else listens on."""
    used = []
    for port in ports:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("0.0.0.0", port))
            except OSError:
                used.append(port)
    return used


def wait_for_others(meeting: dict, deadline: float) -> list[int]:
    """Rank 0: listen as the engine will, and hear which ranks come."""
    met: list[int] = []
    with socket.create_server((meeting["head"], meeting["port"])) as listener:
        while len(met) < meeting["ranks"] - 1 and (remaining_s := deadline - time.monotonic()) > 0:
            listener.settimeout(remaining_s)
            try:
                came, _ = listener.accept()
            except TimeoutError:
                break
            with came:
                came.settimeout(CALL_S)
                met.append(int(came.recv(8)))
                came.sendall(b"0")
    return met


def call_head(meeting: dict, deadline: float) -> list[int]:
    """Every other rank: call rank 0 from the own address until it answers. Its container may start later."""
    target, source = (meeting["head"], meeting["port"]), (meeting["address"], 0)
    while True:
        timeout_s = min(CALL_S, max(PAUSE_S, deadline - time.monotonic()))
        try:
            with socket.create_connection(target, timeout_s, source_address=source) as head:
                head.sendall(str(meeting["rank"]).encode())
                return [int(head.recv(8))]
        except (OSError, ValueError):  # ValueError: it hung up without a word
            if time.monotonic() + PAUSE_S > deadline:
                raise
            time.sleep(PAUSE_S)


def main() -> None:
    meeting = json.loads(sys.argv[1])
    report: dict[str, object] = {
        "vllm": installed("vllm"),
        "torch": installed("torch"),
        "ray": installed("ray"),
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "rdma": sorted(file.name for file in Path("/dev/infiniband").glob("*")),
        "taken": taken(meeting["ports"]),
        "met": [],
        "problem": "",
    }
    meet = call_head if meeting["rank"] else wait_for_others
    try:
        report["met"] = meet(meeting, time.monotonic() + meeting["patience_s"])
    except (OSError, ValueError) as error:
        report["problem"] = str(error)
    print(json.dumps(report))


main()
