"""The watch over a promoted release, on real nodes: an engine that answers /health and makes no step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.real.service import GATEWAY, Service, wait_for

pytestmark = pytest.mark.fleet

QUICK = {"swap__stall_s": "8", "probe__startup__compile_stall_s": "8", "probe__smoke__timeout_s": "4"}
"""The stand-in compiles nothing: far below the 300 s of a real engine."""


def findings(service: Service) -> list[Any]:
    """What `sparkops status --json` shows first."""
    return list(service.cli("status", "--json").json["findings"])


@pytest.mark.matrix
def test_a_wedged_engine_is_named_with_its_evidence_until_it_makes_steps_again(
    stand_in: Service, nodes: RealFleet
) -> None:
    stand_in.sweep()
    first = stand_in.deploy("--node", GATEWAY, name="watched", **QUICK)
    assert first.code == 0, first.err
    (engine,) = stand_in.running()
    node = nodes.node(engine.node)

    with stand_in.load(rate=0, streams=1, stream_tokens=4000, timeout_s=900) as load:
        wait_for(lambda: stand_in.status()["replicas"][0]["ranks"][0]["running"])
        node.exec("docker", "kill", "--signal=USR1", engine.name)
        (finding,) = wait_for(lambda: findings(stand_in))
        shown = stand_in.cli("status")
        node.exec("docker", "kill", "--signal=USR2", engine.name)
        wait_for(lambda: not findings(stand_in))
        load.stop()

    assert (finding["code"], finding["service"], finding["node"]) == ("STALLED", "stand-in", GATEWAY)
    assert finding["container"] == engine.name
    assert shown.out.startswith(f"STALLED {engine.name} on {GATEWAY} since "), shown.out
    assert shown.code == 0, "a warning"
    begun, ended = [
        event for event in stand_in.cli("history", "stand-in", "--json").json["events"] if event["kind"] == "finding"
    ]
    assert ended["text"] == f"{engine.name}: STALLED: ended"
    directory = begun["evidence"][0].split("sparkops-guard:")[1].split()[0]
    files = node.exec("docker", "exec", "sparkops-guard", "ls", directory).split()
    assert {"log.txt", "inspect.json", "metrics.txt", "question.json"} <= set(files)
    (same,) = stand_in.running()
    assert (same.name, same.started_at) == (engine.name, engine.started_at), "the watch changes no engine"
