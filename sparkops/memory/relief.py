"""Memory that must stay available on a node; below it the guard stops a starting release. Pure.

On a Spark, CPU and GPU share the memory. A program that takes the last of it gets no error: the whole machine hangs. So
a starting release is stopped while Docker and sshd still work.
"""

from __future__ import annotations

FLOOR_GIB = 4.0
"""GiB that must stay available: a margin on reports of wedged GB10s (vllm#46307, vllm#56824), not a measured limit."""
LOOKS = 2
"""Samples in a row, a second apart. A single one may fall in a short peak, such as reading a file."""


def floor_gib(reserve_gib: float) -> float:
    """Return the GiB below which a starting release is stopped; less if `swap.reserve_gib` of its recipe is less."""
    return min(FLOOR_GIB, reserve_gib)
