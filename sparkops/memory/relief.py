"""The memory that must stay available on a node: below it a new release is ended, before the whole machine is. Pure.

On a Spark, CPU and GPU share the memory. A program that takes the last of it gets no error: the machine hangs, with
everything on it. So a new release that starts is ended while Docker and sshd can still work.
"""

from __future__ import annotations

FLOOR_GIB = 4.0
"""GiB that must stay available: a margin on reports of wedged GB10s (vllm#46307, vllm#56824), not a measured limit."""
LOOKS = 2
"""Samples in a row, a second apart: a single one may be the moment in which a file is read."""


def floor_gib(reserve_gib: float) -> float:
    """Return the GiB below which a new release is ended; less if its recipe reserves less (`swap.reserve_gib`)."""
    return min(FLOOR_GIB, reserve_gib)
