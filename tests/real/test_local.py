"""The same verbs without SSH: sparkops on the node itself, with `transport: local`.

It runs in the network of a node of its own, with that node's Docker socket, as it would if it were installed there.
Only the files are this machine's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.shell import docker
from tests.real.program import Cli
from tests.real.service import QUICK

pytestmark = pytest.mark.fleet

NODE = f"here-{os.getpid()}"
SETTINGS = {**QUICK, "service": "here", "serve.port": "9300"}


@pytest.fixture
def local(nodes: RealFleet, with_inventory: Callable[..., Cli]) -> Iterator[Cli]:
    """sparkops on a node itself, which it calls `here`."""
    node = nodes.add(NODE)
    pid = docker("inspect", "--format", "{{.State.Pid}}", node.container)

    def change(data: dict[str, Any]) -> None:
        data |= {"nodes": {"here": {"transport": "local"}}, "gateway": {"node": "here", "address": "127.0.0.1"}}

    socket = {"DOCKER_HOST": f"unix:///proc/{pid}/root/run/docker.sock"}
    try:
        yield with_inventory(change, prefix=("nsenter", f"--target={pid}", "--net"), env=socket)
    finally:
        nodes.remove(NODE)


@pytest.mark.matrix
def test_build_deploy_status_logs_and_stop_need_no_ssh(local: Cli) -> None:
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]

    built = local("build", "stand-in", "--json")
    assert (built.code, list(built.json["nodes"])) == (0, ["here"]), built.err
    deployed = local("deploy", "stand-in", "--json", *settings)
    assert deployed.code == 0, deployed.err
    assert (deployed.json["result"], deployed.json["mode"]) == ("done", "first")

    status = local("status", "--json")
    assert status.code == 0
    service = next(row for row in status.json["services"] if row["name"] == "here")
    assert (service["state"], service["live"]["release"]) == ("healthy", deployed.json["release"])
    assert "Application startup complete" in local("logs", "here").out
    assert local("stop", "here").code == 0
    after = next(row for row in local("status", "--json").json["services"] if row["name"] == "here")
    assert after["state"] == "stopped"
