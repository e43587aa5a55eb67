"""Buffers and connections of the gateway, derived from the memory of its container. Pure."""

from __future__ import annotations

MIB, KIB = 2**20, 2**10
MEMORY_MIB = 1536
"""Minimum and default memory of the container: two of the smallest buffers for each connection, one for each that
waits, and RESERVE_MIB."""
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
WAITING = 1800
"""Requests that may wait for a release in all. One client may have as many as it leaves free: 900 if no other waits,
the most that `swap.hold_max` may be. Each keeps one buffer."""
PORTS = 4
"""Ports that cannot use up the connections of each other: the one address, two services, the waiting room."""
CONNECTIONS = PORTS * 900 + METRICS + PROBES
"""Minimum of the limit of connections whose requests do not wait."""
MOST_CONNECTIONS = 9195
"""HAProxy needs two descriptors for each connection, and with 20,000 descriptors it refused 10,195."""


def buffer_bytes(memory_mib: int) -> int:
    """Return the largest buffer size, a power of two, with which the buffers of all connections fit into memory."""
    size = LEAST_BUFFER
    while size < MOST_BUFFER and 2 * size * (2 * CONNECTIONS + WAITING) <= (memory_mib - RESERVE_MIB) * MIB:
        size *= 2
    return size


def frontend_connections(memory_mib: int) -> int:
    """Return the limit of connections to one port. Memory that does not suffice for larger buffers raises it.

    On the one address WAITING are added: requests that wait for one service keep no client from another one.
    """
    buffers = (memory_mib - RESERVE_MIB) * MIB // buffer_bytes(memory_mib)
    fitting = min((buffers - WAITING) // 2, MOST_CONNECTIONS - WAITING)
    return (fitting - METRICS - PROBES) // PORTS


def connections(memory_mib: int) -> int:
    """Return the limit of connections in all."""
    return PORTS * frontend_connections(memory_mib) + WAITING + METRICS + PROBES
