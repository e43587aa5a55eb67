"""Figures in the pages that are limits or settings of the program, with the value that the program has."""

from __future__ import annotations

import re

from sparkops.config.inventory import Gateway
from sparkops.config.startup import Startup
from sparkops.docker.commands import GATE_MEMORY
from sparkops.gateway import capacity
from sparkops.gateway.commands import STOP_S
from sparkops.guard import daemon, evidence, listener, local_service, node_report, operator_socket
from sparkops.memory.compilers import NVCC_GIB
from sparkops.memory.relief import FLOOR_GIB
from sparkops.network import commands as network
from sparkops.nodes import host
from sparkops.swap import journal
from sparkops.swap.model import Limits
from tests import soak
from tests.docs.pages import ROOT


def written(file: str, pattern: str) -> float:
    """Return the number that a template or program of the nodes has. Raises AssertionError if it has none."""
    match = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert match, (file, pattern)
    return float(match[1])


def default(model: type, field: str) -> float:
    """Return the default of a key of a recipe or inventory."""
    return float(model.model_fields[field].default)  # type: ignore[attr-defined]


def body_kib(memory_mib: int) -> float:
    """Return the largest body, in KiB, that a gateway with so much memory reads before it routes it."""
    return (capacity.buffer_bytes(memory_mib) - capacity.BESIDE_BODY) / host.KIB


GATEWAY_KIB = body_kib(capacity.MEMORY_MIB)
LIMITS: dict[str, dict[str, float]] = {
    "README.md": {"30 minutes": default(Startup, "max_s") / 60},
    "CONTRIBUTING.md": {"12 min 30 s": soak.START_S},
    "docs/decisions.md": {"8 GiB": NVCC_GIB, "4 GiB": FLOOR_GIB},
    "docs/guard.md": {"2 s": daemon.SAMPLE_S, "15 s": node_report.IDLE_S, "4 s": node_report.OLD_S},
    "docs/operations.md": {
        "5 s": written("templates/stand-in/stand_in/main.py", r"WATCHDOG_S = ([\d.]+)"),
        "20 s": float(STOP_S),
        "32 MiB": float(capacity.LARGEST_MIB),
        "10 minutes": Limits().unknown_s / 60,
        "64 MiB": evidence.QUOTA / host.MIB,
    },
    "docs/security.md": {
        "10 s": written("templates/node/handshake.py", r"HANDSHAKE_S, ACCEPT_S = [\d.]+, ([\d.]+)"),
        "7 s": float(network.bandwidth_server(network.Perftest("d", 1, 1, 0)).argv[1]),
        "15 s": daemon.LOOK_S,
        "5 s": written("templates/gateway/haproxy.cfg.j2", r"timeout http-request (\d+)s"),
        "16 KiB": written("templates/gateway/access.cfg.j2", r"req\.hdrs,length,add\(txn\.line\) gt (\d+)") / host.KIB,
        "32 MiB": default(Gateway, "max_body_mib"),
        "96 KiB": GATEWAY_KIB,
        "224 KiB": body_kib(2686),
        "480 KiB": body_kib(4986),
        "992 KiB": body_kib(9586),
        "128 MiB": float(capacity.LARGE_MIB),
        "60 s": written("templates/gateway/program/large.py", r"BODY_S = ([\d.]+)"),
        "1.5 GiB": capacity.MEMORY_MIB / 1024,
        "16 GiB": float(GATE_MEMORY[0].removeprefix("--memory=").removesuffix("g")),
        "4600 connections": float(capacity.CONNECTIONS),
        "900 connections": float(capacity.frontend_connections(capacity.MEMORY_MIB)),
        "68 connections": float(capacity.METRICS),
        "32 connections": float(capacity.PROBES),
        "8 connections": float(listener.THREADS),
        "2 s": listener.HEAD_S,
        "1309 connections": float(capacity.frontend_connections(2048)),
        "1819 connections": float(capacity.frontend_connections(2685)),
    },
    "docs/swap.md": {
        "60 s": operator_socket.LEASE_S,
        "10 minutes": Limits().unknown_s / 60,
        "4 hours": Limits().load_s / 3600,
        "1 hour": Limits().verify_s / 3600,
        "5 s": local_service.REFUSED_S,
        "20 s": journal.PAUSES_S[0],
        "300 s": journal.PAUSES_S[1],
    },
}
"""By page: a figure as it is written there, and its value in its last unit."""
