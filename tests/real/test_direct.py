"""A service without a gateway on two real nodes: each node's guard leads its own replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import Cli, Ran
from tests.real.service import QUICK, Service, wait_for, write_inventory

pytestmark = pytest.mark.fleet
PORT = 9800
OVER_TWO = {"serve.tensor_parallel": "2", "serve.executor": "mp"}
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


@pytest.fixture
def pair(front: Cli, nodes: RealFleet, tmp_path: Path) -> Iterator[Service]:
    """One replica over both nodes, rank 0 on node-1, without a gateway. The containers have plain TCP between them."""
    assert front
    cli = Cli(write_inventory(nodes, tmp_path, lambda data: data.update(fabric={"allow_tcp": True})), tmp_path)
    settings = {**QUICK, "service": "pair", "serve.port": str(PORT + 10), **OVER_TWO}
    copied = cli("images", "copy", "stand-in", "--from", "node-1", "--to", "node-2")  # two builds differ
    assert copied.code == 0, copied.err
    service = Service(cli, nodes, name="pair", port=PORT + 10, settings=settings)
    service.sweep()
    yield service
    service.sweep()


def deploy(service: Service, *argv: str, name: str) -> Ran:
    words = [word for word in service.argv(*argv, name=name) if word != "--blue-green"]
    return service.cli(*words)


def answer(service: Service, node: str) -> str:
    """The release that answers on a node; empty if none does."""
    body: dict[str, Any] = {"model": service.name, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
    url = f"http://{service.nodes.node(node).address}:{service.port}/v1/chat/completions"
    try:
        return requests.post(url, json=body, timeout=60).headers.get("x-stand-in", "")
    except requests.ConnectionError:
        return ""


def kill(service: Service, node: str) -> None:
    """SIGKILL for the engine on a node, past Docker."""
    (engine,) = [container for container in service.running() if container.node == node]
    service.nodes.node(node).kill_container(engine.name)


def whole(service: Service, name: str) -> bool:
    """Whether a release answers, and one rank of it and nothing else runs on each node."""
    ranks = sorted((container.node, container.rank) for container in service.running())
    releases = {container.release for container in service.running()}
    return answer(service, "node-1") == name and ranks == [("node-1", 0), ("node-2", 1)] and len(releases) == 1


@pytest.mark.matrix
def test_replicas_are_deployed_replaced_restarted_and_stopped_each_by_its_own_guard(alone: Service) -> None:
    first = deploy(alone, *BOTH, name="first")
    assert first.code == 0, first.err
    outcomes = [
        (replica["node"], replica["result"], replica["mode"], replica["port"]) for replica in first.json["replicas"]
    ]
    assert outcomes == [("node-1", "done", "first", PORT), ("node-2", "done", "first", PORT)]
    assert [answer(alone, node) for node in ("node-1", "node-2")] == ["first", "first"]
    assert {container.restart_policy for container in alone.running()} == {"no"}

    refused = deploy(alone, "--node", "node-1", name="second")
    assert (refused.code, "next: Accept the downtime with --allow-downtime." in refused.err) == (5, True)
    second = deploy(alone, "--node", "node-1", "--allow-downtime", name="second")
    assert (second.code, second.json["replicas"][0]["mode"]) == (0, "in-place"), second.err
    assert [answer(alone, node) for node in ("node-1", "node-2")] == ["second", "first"]

    kill(alone, "node-2")
    wait_for(lambda: answer(alone, "node-2") == "first")

    assert alone.cli("stop", "alone", "--node", "node-1").code == 0
    assert [answer(alone, node) for node in ("node-1", "node-2")] == ["", "first"]
    assert alone.cli("stop", "alone").code == 0
    assert alone.running() == []
    assert {event["node"] for event in alone.cli("history", "alone", "--json").json["events"]} >= {"node-1", "node-2"}


@pytest.mark.matrix
def test_a_pair_is_deployed_replaced_rolled_back_restarted_and_stopped_by_the_guard_of_rank_0(pair: Service) -> None:
    first = deploy(pair, *BOTH, name="first")
    assert first.code == 0, first.err
    assert whole(pair, "first")
    assert answer(pair, "node-2") == "", "only rank 0 serves"
    [replica] = pair.status()["replicas"]
    assert [(rank["node"], rank["rank"], rank["health"]) for rank in replica["ranks"]] == [
        ("node-1", 0, "ok"),
        ("node-2", 1, "ok"),
    ]

    second = deploy(pair, "--allow-downtime", name="second")
    assert second.code == 0, second.err
    assert whole(pair, "second")
    back = pair.cli("rollback", "pair", "--allow-downtime")
    assert back.code == 0, back.err
    assert whole(pair, "first")

    before = {container.started_at for container in pair.running()}
    kill(pair, "node-2")
    wait_for(lambda: not before & {container.started_at for container in pair.running()} and whole(pair, "first"))

    stopped = pair.cli("stop", "pair")
    assert (stopped.code, pair.running()) == (0, []), stopped.err
