"""The last memory of a node: below what is left of it a green must end, before the whole machine does. Pure.

On a Spark, CPU and GPU share the memory, and who takes the last of it does not get an error: the machine wedges, with
everything on it. So a green that comes up is ended while Docker and sshd can still work.
"""

from __future__ import annotations

FLOOR_GIB = 4.0
"""GiB that must stay available: a margin on reports of wedged GB10s (vllm#46307, vllm#56824), not a measured limit."""
LOOKS = 2
"""So many looks in a row, a second apart: one alone may be a moment of a file that is read."""


def floor_gib(reserve_gib: float) -> float:
    """GiB below which a green is ended; less where its recipe keeps back less (`swap.reserve_gib`)."""
    return min(FLOOR_GIB, reserve_gib)
