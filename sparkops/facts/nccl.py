"""Which network NCCL says it uses. With NCCL_DEBUG=INFO and the subsystems INIT and NET it says so once for each rank.

Source: NCCL's own lines, as quoted in the parity notes of spark-vllm-docker: `NET/IB : Using [0]rocep1s0f1:1/RoCE`
and `NET/Socket : Using [0]enp1s0f1np1:10.0.0.1<0>`. None was captured on a Spark here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PROMISE = "NCCL_NET=IB"
RDMA = re.compile(r"NET/IB : Using")
SOCKETS = re.compile(r"NET/Socket : Using.*")


def promised(env: Iterable[str]) -> bool:
    """Whether a container was told to use RoCE."""
    return PROMISE in env


def problem(log: str, *, rank: bool) -> str:
    """What is wrong with the network of a rank that was promised RoCE; empty if nothing is.

    With Ray the lines of every rank stand in the log of `rank` 0, and the others say nothing.
    """
    sockets = SOCKETS.search(log)
    if sockets:
        return f"it fell back to sockets: {sockets[0]}"
    if rank and not RDMA.search(log):
        return "its log does not show NET/IB, which RoCE was promised to be"
    return ""
