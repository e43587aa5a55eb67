"""The network that NCCL uses. With NCCL_DEBUG=INFO and the subsystems INIT and NET each rank prints it once.

Sources: the logs of two ranks over sockets in tests/captured; for RoCE NCCL's own lines, as quoted in the parity
notes of spark-vllm-docker: `NET/IB : Using [0]rocep1s0f1:1/RoCE`. None was captured over RoCE here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PROMISE = "NCCL_NET=IB"
RDMA = re.compile(r"(\S{1,256}:\d{1,9}):\d{1,9} \[\d{1,9}\] NCCL INFO NET/IB : Using")
"""Names the process of the rank: host and process ID."""
SOCKETS = re.compile(r"NET/Socket : Using.{0,256}")


def promised(env: Iterable[str]) -> bool:
    """Return whether the environment of a container makes NCCL use RoCE."""
    return PROMISE in env


def printed(index: int, ranks: int, *, ray: bool) -> int:
    """Return how many ranks print their network to the log of rank `index`: with Ray, all of them to that of rank 0."""
    if not ray:
        return 1
    return 0 if index else ranks


def problem(lines: Iterable[str], ranks: int) -> str:
    """Return why not all `ranks` that print their network to this log use RoCE as promised; empty if they do."""
    processes = set[str]()
    for line in lines:
        if sockets := SOCKETS.search(line):
            return f"it fell back to sockets: {sockets[0]}"
        if "NCCL INFO NET/IB : Using" in line:
            processes.update(RDMA.findall(line))
    shown = len(processes)
    if shown >= ranks:
        return ""
    count = "1 rank" if shown == 1 else f"{shown} ranks"
    return f"its log shows NET/IB, which {PROMISE} promises, for {count}, expected {ranks}"
