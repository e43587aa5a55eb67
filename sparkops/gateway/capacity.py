"""Buffers and connections of the gateway, derived from the memory of its container. Pure."""

from __future__ import annotations

MIB, KIB = 2**20, 2**10
MEMORY_MIB = 1536
"""Minimum and default memory of the container: two of the smallest buffers for each connection, and RESERVE_MIB."""
LARGE_MIB = 128
"""Memory for bodies larger than a buffer, which the waiting room keeps until it has read their model."""
LARGEST_MIB = LARGE_MIB // 4
"""Largest body whose model is read."""
RESERVE_MIB = LARGE_MIB + 258
"""Memory beside the buffers: large bodies, two HAProxy processes during a reload, the waiting room and sockets. With
512 MiB, 680 requests of 1 MB that waited through a reload exhausted the memory (docs/evidence/gateway.md)."""
LEAST_BUFFER, MOST_BUFFER = 128 * KIB, 1024 * KIB
BESIDE_BODY = 32 * KIB
"""Bytes of a buffer for headers and HAProxy's own data."""
METRICS = 68
"""Limit of connections to the metrics."""
METRICS_PER_CLIENT = 8
"""Limit of connections of one address to the metrics, where other machines may read them."""
PROBES = 32
"""Limit of connections of the guard: templates/gateway/program/probe.py sends up to 30 requests at once."""
CONNECTIONS = 5 * 900 + METRICS + PROBES
"""Minimum of the total limit: four services with 900 each, 900 from the waiting room, the metrics and the guard."""


def buffer_bytes(memory_mib: int) -> int:
    """Return the largest buffer size, a power of two, with which two buffers for each connection fit into memory."""
    size = LEAST_BUFFER
    while size < MOST_BUFFER and 4 * size * CONNECTIONS <= (memory_mib - RESERVE_MIB) * MIB:
        size *= 2
    return size


def frontend_connections(memory_mib: int) -> int:
    """Return the limit of connections to one service. Memory that does not suffice for larger buffers raises it.

    Five such frontends, the metrics and the guard are the total, so that no frontend can use up the connections of
    another one. The total is at most 9,195: HAProxy needs two descriptors each, and with 20,000 descriptors it refused
    10,195.
    """
    fitting = (memory_mib - RESERVE_MIB) * MIB // (2 * buffer_bytes(memory_mib)) - METRICS - PROBES
    return fitting // 5
