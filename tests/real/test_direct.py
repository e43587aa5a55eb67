"""A service without a gateway on two real nodes: each node's guard leads its own replica."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import Cli, Ran
from tests.real.service import QUICK, Service, wait_for

pytestmark = pytest.mark.fleet
PORT = 9800
BOTH = ("--node", "node-1", "--node", "node-2")


@pytest.fixture
def alone(front: Cli, sparkops: Cli, nodes: RealFleet) -> Iterator[Service]:
    """A service that an inventory without a gateway deploys. `front` has built its image."""
    assert front
    settings = {**QUICK, "service": "alone", "serve.port": str(PORT)}
    service = Service(sparkops, nodes, name="alone", port=PORT, settings=settings)
    service.sweep()
    yield service
    service.sweep()


def deploy(service: Service, *argv: str, name: str) -> Ran:
    words = [word for word in service.argv(*argv, name=name) if word != "--blue-green"]
    return service.cli(*words)


def answer(service: Service, node: str) -> str:
    """The release that answers on a node; empty if none does."""
    body: dict[str, Any] = {"model": "alone", "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
    url = f"http://{service.nodes.node(node).address}:{PORT}/v1/chat/completions"
    try:
        return requests.post(url, json=body, timeout=60).headers.get("x-stand-in", "")
    except requests.ConnectionError:
        return ""


def test_replicas_are_deployed_replaced_restarted_and_stopped_each_by_its_own_guard(alone: Service) -> None:
    first = deploy(alone, *BOTH, name="first")
    assert first.code == 0, first.err
    told = [(each["node"], each["result"], each["mode"], each["port"]) for each in first.json["replicas"]]
    assert told == [("node-1", "done", "first", PORT), ("node-2", "done", "first", PORT)]
    assert [answer(alone, node) for node in ("node-1", "node-2")] == ["first", "first"]
    assert {each.restart_policy for each in alone.running()} == {"no"}

    refused = deploy(alone, "--node", "node-1", name="second")
    assert (refused.code, "next: Accept the gap with --allow-downtime." in refused.err) == (5, True)
    second = deploy(alone, "--node", "node-1", "--allow-downtime", name="second")
    assert (second.code, second.json["replicas"][0]["mode"]) == (0, "in-place"), second.err
    assert [answer(alone, node) for node in ("node-1", "node-2")] == ["second", "first"]

    (engine,) = [each for each in alone.running() if each.node == "node-2"]
    node = alone.nodes.node("node-2")
    node.exec("sh", "-c", f"kill -9 $(docker inspect --format '{{{{.State.Pid}}}}' {engine.name})")
    wait_for(lambda: answer(alone, "node-2") == "first")

    assert alone.cli("stop", "alone", "--node", "node-1").code == 0
    assert [answer(alone, node) for node in ("node-1", "node-2")] == ["", "first"]
    assert alone.cli("stop", "alone").code == 0
    assert alone.running() == []
    assert {event["node"] for event in alone.cli("history", "alone", "--json").json["events"]} >= {"node-1", "node-2"}
