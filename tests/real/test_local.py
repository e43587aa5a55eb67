"""The same verbs without SSH: sparkops on the node itself, with `transport: local`.

It runs in node-2's network with node-2's Docker socket, as it would if it were installed there. Only the files are
this machine's, so the model lies under the same path on both.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.inventory import Fleet
from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.shell import docker
from tests.real.program import Cli

MODELS = Path("/tmp/sparkops-test-models")


@pytest.fixture
def models(nodes: RealFleet, fleet: Fleet, built: str) -> Iterator[Path]:
    made = checkpoints.make(fleet, "node-1", built, nodes.home / "checkpoints")
    here = fleet.model_copy(update={"nodes": {"node-2": _with_models(fleet)}})
    shutil.rmtree(MODELS, ignore_errors=True)
    shutil.copytree(made, MODELS / "tiny-qwen3")
    nodes.node("node-2").exec("install", "-d", "-o", "ops", str(MODELS))
    checkpoints.copy(here, "node-2", made, "tiny-qwen3")
    yield MODELS
    shutil.rmtree(MODELS)
    nodes.node("node-2").exec("rm", "-r", str(MODELS))


def _with_models(fleet: Fleet) -> Any:
    return fleet.nodes["node-2"].model_copy(update={"model_dir": str(MODELS)})


@pytest.fixture
def local(nodes: RealFleet, models: Path, with_inventory: Callable[..., Cli]) -> Cli:
    pid = docker("inspect", "--format", "{{.State.Pid}}", nodes.node("node-2").container)

    def change(data: dict[str, Any]) -> None:
        data["nodes"] = {"here": {"transport": "local", "model_dir": str(models)}}

    socket = {"DOCKER_HOST": f"unix:///proc/{pid}/root/run/docker.sock"}
    return with_inventory(change, prefix=("nsenter", f"--target={pid}", "--net"), env=socket)


@pytest.mark.vllm
def test_build_deploy_status_logs_and_stop_need_no_ssh(local: Cli, variant: Callable[..., Path]) -> None:
    file = variant({"service: tiny": "service: here", "port: 8000": "port: 8300"})

    built = local("build", file, "--json")
    assert (built.code, built.json["nodes"]["here"]["built"]) == (0, False), built.err
    done = local("deploy", file, "--json")
    assert done.code == 0, done.err
    assert done.json["replicas"][0]["probe"]["passes"] == 3

    status = local("status", "--json")
    assert status.code == 0
    service = next(each for each in status.json["services"] if each["name"] == "here")
    assert (service["state"], service["live"]["release"]) == ("healthy", done.json["release"])
    assert "Application startup complete" in local("logs", "here").out
    assert local("stop", "here").code == 0
    after = next(each for each in local("status", "--json").json["services"] if each["name"] == "here")
    assert after["state"] == "stopped"
