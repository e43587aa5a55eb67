"""What a verb needs of a node does not grow with the fleet: connections, channels, and round trips."""

from __future__ import annotations

from pathlib import Path

from sparkops.operator.build.gateway.image import Service
from tests.fleet_unit.endpoints import serve
from tests.operator.cli.conftest import Sparkops

PORT = 9110
RELEASE = ("stand-in", "--set", f"serve.port={PORT}", "--set", "serve.replicas=all")
VERBS = (("status",), ("plan", *RELEASE), ("deploy", *RELEASE, "--detach"))
Needs = list[dict[str, int]]


def needs(sparkops: Sparkops, home: Path, count: int) -> tuple[Needs, list[Needs]]:
    """By verb: what the node with the gateway was asked, and each of the others, of so many nodes."""
    first, others = Needs(), list[Needs]()
    with serve(home, count, Service("stand-in", PORT, ())) as endpoints:
        for verb in VERBS:
            for endpoint in endpoints.values():
                endpoint.forget()
            ran = sparkops("--inventory", home / "inventory.yaml", *verb)
            assert ran.code == 0, ran.err
            counts = [endpoint.counts() for endpoint in endpoints.values()]
            assert {count["connections"] for count in counts} == {1}
            first.append(counts[0])
            others.append(counts[1:])
    return first, others


def test_a_node_is_asked_as_much_in_a_fleet_of_16_as_in_one_of_two(sparkops: Sparkops, tmp_path: Path) -> None:
    gateway, others = needs(sparkops, tmp_path / "two", 2)

    assert needs(sparkops, tmp_path / "many", 16) == (gateway, [counts * 15 for counts in others])
