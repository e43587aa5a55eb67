"""Memory that must stay available on a node; below it the guard stops a starting release, or warns. Pure.

On a Spark, CPU and GPU share the memory. A program that takes the last of it gets no error: the whole machine hangs. So
a starting release is stopped while Docker and sshd still work, and a promoted one if its recipe says so.
"""

from __future__ import annotations

from math import inf

FLOOR_GIB = 4.0
"""GiB that must stay available: a margin on reports of wedged GB10s (vllm#46307, vllm#56824), not a measured limit."""
FLOOR_SHARE = FLOOR_GIB / 121.7
"""The same as a share of a Spark's memory, for a node with less: 2 GiB on a Spark with 64 GB. A choice."""
ENOUGH = 1.25
"""Multiple of the floor at which a shortage beside promoted engines has ended, so that it does not come and go."""
LOOKS = 2
"""Samples in a row, a second apart. A single one may fall in a short peak, such as reading a file."""


def floor_gib(reserve_gib: float, total_gib: float = inf) -> float:
    """Return the GiB that must stay available on a node with `total_gib`; less if `swap.reserve_gib` is less."""
    return min(FLOOR_GIB, FLOOR_SHARE * total_gib, reserve_gib)
