"""The gateway's node is lost: gateway and leader start on another one, and the engine there never stops."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import requests

from sparkops.swap.journal import SCHEMA
from sparkops.swap.model import Phase
from tests.fleet.fleet import Fleet
from tests.fleet.shell import FleetError, docker
from tests.real.endings import at
from tests.real.program import Cli
from tests.real.service import RELAY, Service, unused, wait_for, write_inventory

pytestmark = pytest.mark.fleet

ASKED = {"model": "stand-in", "messages": [{"role": "user", "content": "What is the capital of France?"}]}


def answers(nodes: Fleet, port: int) -> str:
    """The release that answers through the gateway on node-2; empty without an answer."""
    with requests.Session() as asking:
        asking.trust_env = False
        try:
            url = f"http://{nodes.node('node-2').address}:{port}/v1/chat/completions"
            reply = asking.post(url, json=ASKED, timeout=60)
        except requests.RequestException:
            return ""
    return reply.headers.get("x-sparkops-release", "") if "Paris" in reply.text else ""


def running(nodes: Fleet, node: str) -> list[str]:
    """Engines of the service that run on a node."""
    form = ("--filter", "label=sparkops.service=stand-in", "--format", "{{.Names}} {{.ID}}")
    return nodes.node(node).exec("docker", "ps", *form).splitlines()


@pytest.mark.matrix
def test_a_lost_gateway_is_rebuilt_on_the_other_node_whose_engine_keeps_serving(
    service: Service, nodes: Fleet, tmp_path: Path
) -> None:
    moved = Cli(write_inventory(nodes, tmp_path, lambda data: data.update(gateway={"node": "node-2"})), tmp_path)
    lost = nodes.node("node-1")
    release, engine = service.running()[0].release, running(nodes, "node-2")

    unmoved = service.cli("gateway", "rebuild", "node-2", "--without", "node-1")
    assert unmoved.code == 2, unmoved.err
    assert "gateway.node: node-1, expected node-2" in unmoved.err
    alive = moved("gateway", "rebuild", "node-2")
    assert (alive.code, "node-1: the leader of this fleet answers" in alive.err) == (5, True), alive.err

    docker("stop", "--time=1", lost.container)
    try:
        wait_for(lambda: _names_the_lost_node(moved))  # before that the leader's last message is too recent
        wait_for(lambda: moved("gateway", "rebuild", "node-2", "--without", "node-1", "--dry-run").code == 0)
        rebuilt = moved("gateway", "rebuild", "node-2", "--without", "node-1", "--json")
        assert rebuilt.code == 0, rebuilt.err
        (row,) = [row for row in rebuilt.json["services"] if row["name"] == "stand-in"]
        assert (row["release"], row["problem"]) == (release, None)
        assert wait_for(lambda: answers(nodes, service.port)) == release
        docker("start", lost.container)
        lost.wait()
        wait_for(lambda: _is_deposed(nodes))
        assert (running(nodes, "node-1"), running(nodes, "node-2")) == ([], engine)
        assert answers(nodes, service.port) == release
    finally:
        docker("start", lost.container)
        lost.wait()
        _begin_anew(nodes, service)


@pytest.mark.matrix
@pytest.mark.parametrize("phase", [Phase.FREE, Phase.LOAD, Phase.VERIFY])
def test_a_rebuild_during_a_swap_in_place_starts_the_old_release_that_it_has_stopped(
    service: Service, nodes: Fleet, tmp_path: Path, phase: Phase
) -> None:
    moved = Cli(write_inventory(nodes, tmp_path, lambda data: data.update(gateway={"node": "node-2"})), tmp_path)
    lost = nodes.node("node-1")
    [old] = service.running()
    argv = ("--node", old.node, "--mode", "in-place", "--allow-downtime")
    try:
        with at(service, phase, *argv, name=unused(), START_S="30" if phase is Phase.LOAD else "1"):
            docker("kill", lost.container)
        struck = time.monotonic()
        wait_for(lambda: moved("gateway", "rebuild", "node-2", "--without", "node-1", "--dry-run").code == 0)
        began = time.monotonic()
        rebuilt = moved("gateway", "rebuild", "node-2", "--without", "node-1", "--json")
        assert rebuilt.code == 0, rebuilt.err
        assert wait_for(lambda: answers(nodes, service.port)) == old.release
        serves = time.monotonic()
        print(f"\nrebuild in {phase}: possible after {began - struck:.0f} s, serves {serves - began:.0f} s later")
        wait_for(lambda: service.journal("node-2").swap is None)
        journal, state = service.journal("node-2"), service.state("node-2")
        assert journal.active
        assert (journal.leader, journal.active.release, state["needs_operator"]) == ("node-2", old.release, "")
        events = service.events("node-2")
        assert [event["text"] for event in events if "gateway rebuild" in event["text"]], events
        docker("start", lost.container)
        lost.wait()
        wait_for(lambda: _is_deposed(nodes))
        [engine] = [container for container in service.running() if container.node == "node-2"]
        assert (engine.name, engine.started_at > old.started_at, running(nodes, "node-1")) == (old.name, True, [])
        assert answers(nodes, service.port) == old.release
    finally:
        docker("start", lost.container)
        lost.wait()
        _begin_anew(nodes, service)


def _names_the_lost_node(moved: Cli) -> bool:
    """Whether a rebuild is refused because the lost node is not given up."""
    refused = moved("gateway", "rebuild", "node-2")
    assert refused.code == 5, refused.err
    return "--without node-1" in refused.err


def _is_deposed(nodes: Fleet) -> bool:
    """Whether the guard of the old leader sees the newer term."""
    request = json.dumps({"op": "state", "format": SCHEMA, "service": "stand-in"}) + "\n"
    try:
        state = json.loads(nodes.node("node-1").exec(*RELAY.split(), stdin=request.encode()))["ok"]
    except (FleetError, KeyError, ValueError):
        return False
    own = state["journal"]["term"]
    return any(report["term"] > own for report in state["reports"].values())


def _begin_anew(nodes: Fleet, service: Service) -> None:
    """Remove the agents and what they keep: the next deploy of a test starts them, with the gateway on node-1."""
    for node in nodes.nodes:
        node.exec("sh", "-c", "docker rm --force $(docker ps --all --quiet --filter name=sparkops-) || true")
        node.exec("docker", "volume", "rm", "--force", "sparkops-state", "sparkops-gateway")
    service.sweep()
