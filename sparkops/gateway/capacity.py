"""Buffers and connections of the gateway, which follow from the memory of its container. Pure."""

from __future__ import annotations

MIB, KIB = 2**20, 2**10
MEMORY_MIB = 1536
"""Least and default memory of the container: two of the smallest buffers for each connection, and RESERVE_MIB."""
LARGE_MIB = 128
"""Memory of bodies larger than a buffer, which the waiting room keeps until it has read their model."""
LARGEST_MIB = LARGE_MIB // 4
"""Largest body whose model is read."""
RESERVE_MIB = LARGE_MIB + 258
"""Memory for all but buffers: large bodies, two HAProxy processes during a reload, the waiting room and sockets. With
512 MiB, 680 requests of 1 MB that had waited through a reload ended the gateway (docs/evidence/gateway.md)."""
LEAST_BUFFER, MOST_BUFFER = 128 * KIB, 1024 * KIB
BESIDE_BODY = 32 * KIB
"""Bytes of a buffer that headers and HAProxy's own marks may take."""
METRICS = 100
"""Connections to the metrics."""
CONNECTIONS = 5 * 900 + METRICS
"""Least connections in all: four services of 900, 900 that come from the waiting room, and the metrics."""


def buffer_bytes(memory_mib: int) -> int:
    """Return the largest size of a buffer, a power of two, of which two for each connection fit into the memory."""
    size = LEAST_BUFFER
    while size < MOST_BUFFER and 4 * size * CONNECTIONS <= (memory_mib - RESERVE_MIB) * MIB:
        size *= 2
    return size


def frontend_connections(memory_mib: int) -> int:
    """Return the most connections to one service: memory that is too little for larger buffers takes more of them.

    Five such frontends and the metrics are all connections, so that no frontend can take what another one needs. The
    most are 9,195 in all: HAProxy takes two descriptors each, and refused 10,195 with 20,000.
    """
    fitting = (memory_mib - RESERVE_MIB) * MIB // (2 * buffer_bytes(memory_mib)) - METRICS
    return fitting // 5
