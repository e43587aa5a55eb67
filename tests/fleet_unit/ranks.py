"""What a machine says when it is asked about the network of its ranks, and what ranks answer that try to meet."""

from __future__ import annotations

import json

from sparkops.operator.fleet.network import facts

SAID = """\
== words
kernel 6.12
memlock 8192
driver
tool ping
== sysfs
net/eth0/speed:10000
== addresses
"""
MET = json.dumps(
    {
        "vllm": "0.32.0",
        "torch": "2.13.0",
        "ray": "2.60.0",
        "memlock": 65536,
        "rdma": [],
        "taken": [],
        "met": [0],
        "problem": "",
    }
)
"""What templates/rendezvous.py says of a rank that met the others."""


def network(address: str) -> str:
    """The network of a machine: one wire, whose last number is that of its loopback address."""
    own = {"family": "inet", "local": f"10.0.0.{address.rpartition('.')[2]}", "prefixlen": 24}
    wire = {"ifname": "eth0", "flags": ["UP", "LOWER_UP"], "mtu": 1500, "addr_info": [own]}
    return SAID + json.dumps([wire])


def answer(address: str, argv: tuple[str, ...]) -> tuple[int, str] | None:
    """Exit code and what is printed, of what only swaps on other nodes ask, and pairs."""
    match argv:
        case ("hostname", "-I"):
            return 0, f"{address}\n"
        case ("sh", "-c", script, *_) if script == facts.FABRIC_SCRIPT:
            return 0, network(address)
        case ("ping", *_):
            return 0, ""
        case ("docker", "cp", "-", _):
            return 0, ""
        case ("docker", "run", *_, "-", _):
            return 0, MET
        case _:
            return None
