"""The gateway moves between two nodes that answer: no request fails at the old address, nor at the new one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkops.operator.demo.traffic.generator import Traffic
from tests.fleet.fleet import Fleet
from tests.real.program import Cli
from tests.real.service import GATEWAY, Service, nothing_failed, wait_for, write_inventory
from tests.real.test_rebuild import _begin_anew, answers

pytestmark = pytest.mark.fleet


@pytest.fixture
def moved(service: Service, nodes: Fleet, tmp_path: Path) -> Iterator[Cli]:
    """sparkops whose inventory has the gateway on node-2; afterwards nothing of the service is left."""
    yield Cli(write_inventory(nodes, tmp_path, lambda data: data.update(gateway={"node": "node-2"})), tmp_path)
    _begin_anew(nodes, service)


def gateways(nodes: Fleet) -> list[str]:
    """The nodes whose gateway runs."""
    shown = ("docker", "ps", "--quiet", "--filter", "name=^sparkops-gateway$")
    return [node.name for node in nodes.nodes if node.exec(*shown).strip()]


def test_no_request_fails_through_the_old_gateway_and_then_through_the_new_one(
    service: Service, nodes: Fleet, moved: Cli
) -> None:
    (engine,) = service.running()
    refused = service.cli("node", "drain", GATEWAY)
    assert (refused.code, "next: Move the gateway first: sparkops gateway move node-2" in refused.err) == (5, True)
    planned = service.cli("gateway", "move", "node-2", "--dry-run")
    assert (planned.code, gateways(nodes)) == (0, [GATEWAY]), planned.err

    with service.load() as old:
        old.wait_for(10)
        with service.cli.start("gateway", "move", "node-2", "--keep", "20s", "--json") as running:
            wait_for(lambda: answers(nodes, service.port))
            url = f"http://{nodes.node('node-2').address}:{service.port}"
            with Traffic(url, service.name, streams=4, rate=15, seconds=900, stream_tokens=400) as new:
                new.wait_for(10)
                old.stop()  # its clients have the new address now
                _, err = running.communicate(timeout=600)
                new.wait_for(new.report().good + 30)
    assert running.returncode == 0, err
    assert "Set `gateway.node: node-2`" in err
    nothing_failed(old)
    nothing_failed(new)
    assert set(old.report().releases) | set(new.report().releases) == {engine.release}
    assert gateways(nodes) == ["node-2"]
    assert [it.started_at for it in service.running()] == [engine.started_at]
    again = moved("gateway", "move", "node-2", "--json")
    assert (again.code, again.json["result"]) == (0, "nothing"), again.err
    assert moved("stop", service.name).code == 0, "the new leader decides"
    told = [event["text"] for event in moved("history", service.name, "--json").json["events"]]
    assert any(engine.release in text for text in told), "what the former leader has recorded stays in the history"
    assert service.journal("node-2").leader == "node-2"


@pytest.mark.matrix
@pytest.mark.parametrize("after_s", [1, 3, 5, 7, 9, 12, 15, 20, 30])
def test_a_move_whose_client_is_killed_is_continued_and_ends_with_one_gateway(
    service: Service, nodes: Fleet, moved: Cli, after_s: float
) -> None:
    with service.cli.start("gateway", "move", "node-2", "--keep", "5s") as running:
        time.sleep(after_s)
        running.kill()
    assert gateways(nodes), "one answers at any time"

    continued = service.cli("gateway", "move", "node-2", "--keep", "0")

    assert continued.code == 0, continued.err
    assert (gateways(nodes), service.journal("node-2").leader) == (["node-2"], "node-2")
    assert wait_for(lambda: answers(nodes, service.port)) == service.running()[0].release
    assert moved("gateway", "move", "node-2", "--json").json["result"] == "nothing"
