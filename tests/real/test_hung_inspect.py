"""Docker does not answer `docker inspect` for the container that serves: it serves on, and status names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.fleet.node import FleetNode
from tests.fleet.shell import FleetError
from tests.real.endings import good_end
from tests.real.service import Service, wait_for

pytestmark = pytest.mark.fleet


@contextmanager
def hung(node: FleetNode, container: str) -> Iterator[None]:
    """Stop the container's shim, and let Docker wait for it with the container's lock: `docker pause` takes it."""
    pid = node.exec("docker", "inspect", "--format", "{{.State.Pid}}", container).strip()
    shim = node.exec("ps", "-o", "ppid=", "-p", pid).strip()
    node.exec("kill", "-STOP", shim)
    try:
        node.exec("sh", "-c", f"nohup docker pause {container} >/dev/null 2>&1 &")
        wait_for(lambda: waits(node, container))
        yield
    finally:
        node.exec("kill", "-CONT", shim)
        wait_for(lambda: not waits(node, container))
        node.exec("sh", "-c", f"docker unpause {container} || true")


def waits(node: FleetNode, container: str) -> bool:
    try:
        node.exec("timeout", "3", "docker", "inspect", container)
    except FleetError:
        return True
    return False


def other(service: Service, home: Path) -> Service:
    """Return another service of the stand-in, which the guard of the same node leads or follows."""
    recipe = home / "beside.yaml"
    words = {"description": "Another service", "verified": "nothing"}
    recipe.write_text(
        yaml.safe_dump({"name": "beside", "extends": "stand-in", "service": "beside", "serve": {"port": 9180}, **words})
    )
    return replace(service, recipe=str(recipe), name="beside", port=9180)


@pytest.mark.matrix
def test_a_container_that_docker_does_not_inspect_serves_on_and_is_named(service: Service, tmp_path: Path) -> None:
    """Nor is its guard blind meanwhile: it stops the engine of another service."""
    [old] = service.running()
    node, beside = service.nodes.node(old.node), other(service, tmp_path)
    assert beside.cli("build", beside.recipe, "--node", node.name).code == 0
    began = beside.deploy("--node", node.name, name="beside")
    assert began.code == 0, began.err
    with service.load(rate=10, streams=2) as load:
        load.wait_for(20)
        with hung(node, old.name):
            ran = service.cli("status", "--json")
            [row] = [row for row in ran.json["services"] if row["name"] == service.name]
            [rank] = [rank for replica in row["replicas"] for rank in replica["ranks"] if rank["state"] == "running"]
            assert (row["state"], rank["container"], rank["health"]) == ("healthy", old.name, "ok"), ran.out
            assert [(item["code"], item["node"]) for item in ran.json["drift"]] == [("NOT_INSPECTED", node.name)]
            stopped = beside.cli("stop", beside.name, "--forget")
            assert (stopped.code, beside.running()) == (0, []), stopped.err
            load.wait_for(load.report().good + 50)
        assert good_end(service) == old.release
        assert load.report().failures == {}
    [now] = service.running()
    assert (now.name, now.started_at) == (old.name, old.started_at)
