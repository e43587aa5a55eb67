"""Deploys of the real vLLM on real nodes."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from pydantic import TypeAdapter

from sparkops.config.inventory import Fleet
from sparkops.operator.status.picture import Status
from tests.fleet.fleet import Fleet as RealFleet
from tests.operator.demo.traffic.openai_clients import Clients
from tests.real.evidence import saved
from tests.real.program import RECIPE, Cli
from tests.real.service import Service
from tests.real.test_build import wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.usefixtures("model")]

ALIAS = "sparkops/Tiny"
NEXT = {
    "serve.aliases": f"[{ALIAS}]",
    "serve.args.max-model-len": "512",
    "swap.bake_s": "5",
    "swap.drain_s": "60",
    "probe.passes": "1",
}
"""What the release that replaces the first one says."""


@pytest.fixture(scope="module")
def deployed(sparkops: Cli, model: str) -> Iterator[Any]:
    """The tiny service on node-1."""
    assert model
    sparkops("stop", "tiny", "--forget")
    ran = sparkops("deploy", RECIPE, "--node", "node-1", "--json")
    assert ran.code == 0, ran.err
    yield ran
    sparkops("stop", "tiny")


@pytest.mark.usefixtures("deployed")
def test_it_answers_truly(fleet: Fleet) -> None:
    url = f"{fleet.require_gateway().url(8000)}/chat/completions"
    body = {"model": "tiny", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    answer = requests.post(url, json={**body, "max_tokens": 32, "temperature": 0}, timeout=60).json()
    assert "Paris" in answer["choices"][0]["message"]["content"]


def test_the_start_is_told_by_phases_and_stages(deployed: Any) -> None:
    result = deployed.json
    assert (result["result"], result["mode"], result["exit_code"]) == ("done", "first", 0)
    assert {"prepare", "start", "wait until ready", "verify", "switch"} <= result["seconds"].keys()
    stages = re.findall(r"node-1: ([a-zA-Z ]+)", deployed.err)
    assert {"starting", "loading weights", "sizing the KV cache", "opening the API"} & set(stages), deployed.err
    assert re.search(rf"\] tiny: {deployed.json['release']} on node-1, mode first$", deployed.err, re.MULTILINE)
    assert re.search(r"\] tiny: started on node-1, [0-9].* (s|min)$", deployed.err, re.MULTILINE)
    assert re.search(r"\] tiny: (all|\d+) checks passed, .+ s$", deployed.err, re.MULTILINE)


def test_status_names_nodes_release_digest_and_health(
    nodes: RealFleet, sparkops: Cli, fleet: Fleet, deployed: Any
) -> None:
    ran = sparkops("status", "--json")
    assert ran.code == 0
    status = TypeAdapter(Status).validate_json(ran.out)
    assert [node.name for node in status.nodes] == ["node-1", "node-2"]
    service = next(service for service in status.services if service.name == "tiny")
    assert (service.name, service.state, service.url) == ("tiny", "healthy", fleet.require_gateway().url(8000))
    assert service.live is not None
    assert service.live.release == deployed.json["release"]
    assert service.live.image == nodes.node("node-1").exec("docker", "inspect", "-f", "{{.Image}}", container(deployed))
    live = [replica for replica in service.replicas if replica.release == service.live.release]
    assert [rank.stage for replica in live for rank in replica.ranks] == ["serving"]
    assert status.drift == []


def test_a_second_deploy_of_the_same_release_changes_nothing(nodes: RealFleet, sparkops: Cli, deployed: Any) -> None:
    node = nodes.node("node-1")
    since = node.exec("date", "+%s.%N")
    repeated = sparkops("deploy", RECIPE, "--node", "node-1", "--json")
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
    assert repeated.code == 0, repeated.err
    assert (repeated.json["result"], repeated.json["release"]) == ("nothing", deployed.json["release"])
    assert changes == []


def test_the_cache_is_as_fit_predicts(sparkops: Cli, deployed: Any) -> None:
    fit = sparkops("fit", RECIPE, "--node", "node-1", "--json")
    assert fit.code == 0, fit.err
    [predicted] = fit.json["nodes"]
    logged = re.search(r"KV cache size: ([\d,]+) tokens", sparkops("logs", "tiny", "--node", "node-1").out)
    assert logged, deployed.err
    assert predicted["kv_cache"]["tokens"] == pytest.approx(int(logged[1].replace(",", "")), rel=0.01)


def test_vllm_is_pid_1_with_bounded_logs_and_least_rights(nodes: RealFleet, deployed: Any) -> None:
    inspect = json.loads(nodes.node("node-1").exec("docker", "inspect", container(deployed)))[0]
    host = inspect["HostConfig"]
    top = nodes.node("node-1").exec("docker", "exec", container(deployed), "cat", "/proc/1/cmdline").split("\0")
    assert any(word.endswith("/vllm") for word in top[:2])
    assert host["LogConfig"]["Config"] == {"max-file": "5", "max-size": "20m"}
    assert host["RestartPolicy"]["Name"] == "no"
    assert (host["Privileged"], host["CapAdd"], host["CapDrop"]) == (False, None, ["ALL"])
    assert (inspect["Config"]["User"], host["PidsLimit"]) == ("10841:10841", 8192)
    status = nodes.node("node-1").exec("docker", "exec", container(deployed), "cat", "/proc/1/status")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE), status
    assert inspect["Config"]["StopTimeout"] == 60


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
        _, err = process.communicate(timeout=300)
    assert (process.returncode, "Traceback" in err) == (130, False)
    wait_until(lambda: "docker logs --follow" not in nodes.node("node-1").exec("ps", "-eo", "args"))


@pytest.mark.usefixtures("untouched")
def test_a_model_that_is_not_there_is_refused(sparkops: Cli, variant: Callable[..., Path]) -> None:
    file = variant({"path: tiny-qwen3": "path: not-there", "service: tiny": "service: other"})
    refused = sparkops("deploy", file, "--node", "node-1")
    assert refused.code == 5
    assert f"needs: weights (sparkops up {file} --node node-1 brings them)" in refused.err


@pytest.mark.matrix
def test_a_start_that_fails_is_told_at_once_and_kept(
    nodes: RealFleet, sparkops: Cli, with_inventory: Callable[..., Cli], variant: Callable[..., Path], deployed: Any
) -> None:
    """vLLM refuses a context that its parser accepts, and ends; its log stays on the node, and with its guard."""
    assert deployed
    changes = {"service: tiny": "service: broken", "max-model-len: 1024": "max-model-len: 4096"}
    with_devices = with_inventory(lambda data: data["nodes"]["node-2"].update(DEVICES))
    failed = with_devices("deploy", variant({**changes, "port: 8000": "port: 8100"}), "--node", "node-2")
    assert failed.code == 1
    assert "its process exited with code 1 (stage: starting)" in failed.err
    assert "likely cause: max-model-len 4096 is more than the model's 2048" in failed.err
    assert "next: sparkops history broken" in failed.err
    on_node = {node.name: node for node in nodes.nodes}
    assert "greater than the derived max_model_len" in saved(sparkops, "broken", on_node, "log.txt")
    assert "greater than the derived max_model_len" in sparkops("logs", "broken", "--node", "node-2").out
    row = next(service for service in sparkops("status", "--json").json["services"] if service["name"] == "broken")
    (rank,) = row["replicas"][0]["ranks"]
    assert (row["state"], rank["state"]) == ("failed", "exited")
    _has_devices(json.loads(saved(sparkops, "broken", on_node, "inspect.json")))
    nodes.node("node-2").exec("docker", "rm", rank["container"])


DEVICES = {"gpu": "devices", "gpu_devices": ["/dev/full"], "gpu_mounts": ["/usr/share/zoneinfo"]}


def _has_devices(inspect: Any) -> None:
    """A plain driver's way: devices by name, its files read-only. /dev/full stands for /dev/nvidia0 here."""
    host = inspect["HostConfig"]
    assert [device["PathInContainer"] for device in host["Devices"]] == ["/dev/full"]
    assert "/usr/share/zoneinfo:/usr/share/zoneinfo:ro" in host["Binds"]


@pytest.mark.matrix
def test_a_deploy_that_is_interrupted_goes_on_and_is_followed_by_the_next(
    nodes: RealFleet, sparkops: Cli, variant: Callable[..., Path], deployed: Any
) -> None:
    assert deployed
    file = variant({"service: tiny": "service: adopted", "port: 8000": "port: 8200"})
    node = nodes.node("node-2")
    with sparkops.start("deploy", file, "--node", "node-2") as process:
        wait_until(lambda: "adopted" in node.exec("docker", "ps", "--format", '{{.Label "sparkops.service"}}'))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "adopted: no longer followed; the fleet continues" in err
    assert "next: sparkops status adopted --follow" in err
    started = node.exec("docker", "ps", "--filter", "label=sparkops.service=adopted", "--format", "{{.ID}}")
    repeated = sparkops("deploy", file, "--node", "node-2", "--json")
    assert repeated.code == 0, repeated.err
    assert node.exec("docker", "ps", "--filter", "label=sparkops.service=adopted", "--format", "{{.ID}}") == started
    assert sparkops("stop", "adopted").code == 0


def test_an_in_place_swap_fails_no_request_of_openais_client(nodes: RealFleet, sparkops: Cli, deployed: Any) -> None:
    """The new release answers to an alias as well."""
    service = Service(sparkops, nodes, str(RECIPE), "tiny", 8000, NEXT)
    clients = Clients(service.url, service.name)
    with clients.running():
        clients.wait_for_more(4)
        ran = service.deploy("--node", "node-1", "--mode", "in-place", "--allow-downtime")
        clients.wait_for_more(4)
    assert (ran.code, ran.json["mode"]) == (0, "in-place"), ran.err
    assert {call.release for call in clients.calls} == {deployed.json["release"], ran.json["release"]}
    (new,) = service.running()  # all nodes are on this machine, so they share its clock
    assert [call for call in clients.calls if call.start_s < new.started_at and call.release == new.release]
    body = {"model": ALIAS, "messages": [{"role": "user", "content": "What is 2+2?"}], "temperature": 0}
    answer = requests.post(f"{service.url}/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert "4" in answer.json()["choices"][0]["message"]["content"]
    listed = requests.get(f"{service.url}/v1/models", timeout=30).json()["data"]
    assert [model["id"] for model in listed] == ["tiny", ALIAS]


@pytest.mark.usefixtures("deployed")
def test_stop_is_seen_by_inspect(nodes: RealFleet, sparkops: Cli) -> None:
    """The last test of this file: it ends what the others used."""
    (serving,) = Service(sparkops, nodes, str(RECIPE), "tiny", 8000).running()
    name = serving.name
    stopped = sparkops("stop", "tiny")
    assert stopped.code == 0
    form = "{{.State.Status}} {{.HostConfig.RestartPolicy.Name}}"
    assert nodes.node("node-1").exec("docker", "inspect", "--format", form, name) == "exited no"
    services = sparkops("status", "--json").json["services"]
    assert next(service for service in services if service["name"] == "tiny")["state"] == "stopped"
    repeated = sparkops("stop", "tiny")
    assert (repeated.code, "tiny: nothing to do" in repeated.err) == (0, True)


def container(deployed: Any) -> str:
    """It is the first release of its service since that was forgotten."""
    return f"{deployed.json['release']}-blue-r0"
