"""Whatever is wrong with green or with the nodes has a message of its own, and blue goes on serving."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fleet import shell
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.evidence import saved
from tests.real.service import GATEWAY, Service

pytestmark = pytest.mark.fleet

MATRIX = pytest.mark.matrix
LOCAL_CLIENTS = Path(__file__).with_name("local_clients.py")
GREENS_PORT = 9102
TAKE = """\
import pathlib, socket, time
taken = socket.socket()
while taken.getsockname()[1] != {port}:
    try:
        taken.bind(("", {port}))
    except OSError:
        time.sleep(0.1)
pathlib.Path('/run/taken').touch()
time.sleep(600)
"""
# A file system on which nothing can be made is a full disk: here Docker's own image store notes which layers a new
# container has; with containerd's, Docker makes a directory for it.
PLACES = "cd /var/lib/docker && realpath -e image/overlay2/layerdb/mounts containers 2>/dev/null || true"
TAGS = "docker images --format '{{.Repository}}:{{.Tag}} {{.ID}}' sparkops/stand-in"


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        pytest.param({"CRASH_AT": "80"}, "RuntimeError: the stand-in crashes at 80 % of the weights", marks=MATRIX),
        pytest.param(
            {"HANG_AT": "40", "probe__startup__stall_s": "8"},
            "no progress for 8 s (stage: loading weights 40 %)",
            marks=MATRIX,
        ),
        pytest.param({"FATAL": "CUDA out of memory"}, "CUDA out of memory", marks=MATRIX),
        pytest.param(
            {"HEALTH_ONLY": "1", "probe__smoke__timeout_s": "3", "probe__smoke__warm_up__timeout_s": "3"},
            "warm_up",
            marks=MATRIX,
        ),
        ({"ANSWERS": "nonsense"}, "questions"),
        pytest.param({"ANSWERS": "bangs"}, "questions", marks=MATRIX),
        pytest.param({"ANSWERS": "wrong_name"}, "models", marks=MATRIX),
        pytest.param({"ANSWERS": "raw_tools"}, "tools", marks=MATRIX),
        pytest.param(
            {"TOK_S": "50", "probe__smoke__speed__enabled": "true", "expected__tok_s": "500"}, "speed", marks=MATRIX
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_bad_green_is_refused_with_its_own_reason_and_blue_never_stops(
    service: Service, knobs: dict[str, str], reason: str
) -> None:
    with service.untouched():
        failed = service.deploy("--node", "node-1", name="bad", **knobs)
    assert failed.code == 1, failed.err
    assert reason in failed.err
    status = service.status()
    assert (status["state"], status["swap"]) == ("healthy", None)
    nodes = {node.name: node for node in service.nodes.nodes}
    assert "vllm" in saved(service.cli, service.name, nodes, "log.txt")
    inspect = json.loads(saved(service.cli, service.name, nodes, "inspect.json"))
    assert inspect["State"]["Running"] in (True, False)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        # late enough that a slow machine has switched by then, and long before the bake ends
        ({"DIE_AFTER_S": "20", "swap__bake_s": "300"}, "-r0 ended; rolling back"),
        pytest.param(
            {"HANG_AFTER_S": "20", "swap__bake_s": "300", "swap__stall_s": "3"},
            "does not answer",
            marks=MATRIX,
        ),
    ],
    ids=["dies", "hangs with 200 on /health"],
)
def test_a_green_that_fails_after_the_switch_is_flipped_back(
    service: Service, knobs: dict[str, str], reason: str
) -> None:
    (blue,) = service.running()
    failed = service.deploy("--node", "node-1", name="fails", **knobs)
    assert failed.code == 1, failed.err
    assert re.search(reason, failed.err), failed.err
    status = service.status()
    assert (status["state"], status["swap"], status["live"]["release"]) == ("healthy", None, blue.release)
    assert [(container.name, container.started_at) for container in service.running()] == [(blue.name, blue.started_at)]


@pytest.mark.matrix
def test_clients_at_their_limit_on_the_gateways_node_do_not_revert_an_in_place_swap(service: Service) -> None:
    """They share an address with the guard of that node. Its requests have a way of their own."""
    with local_clients(service, 300) as outcomes:
        ran = service.deploy(
            "--node", "node-2", "--mode", "in-place", "--allow-downtime", name="second", swap__bake_s="20"
        )
    assert (ran.code, ran.json["mode"]) == (0, "in-place"), ran.err
    assert service.status()["live"]["release"] == ran.json["release"]
    assert outcomes["200"] > 256, outcomes
    assert outcomes["refused"] > 0, "they were at their limit"
    assert set(outcomes) == {"200", "refused"}, "no request of a connection that the gateway took was lost"


@pytest.mark.matrix
def test_a_port_that_is_taken_unseen_is_the_reason(service: Service) -> None:
    """A program that does not listen yet is in no list, and green cannot have its port."""
    with service.untouched(), taken(service.nodes.node("node-1")):
        failed = service.deploy("--node", "node-1", name="late")
    assert failed.code == 1, failed.err
    assert "Address already in use" in failed.err
    assert "likely cause: another program uses the port" in failed.err


def test_a_full_disk_is_the_reason(service: Service) -> None:
    node = service.nodes.node("node-1")
    place = node.exec("sh", "-c", PLACES).splitlines()[0]
    node.exec("mount", "-t", "tmpfs", "-o", "nr_inodes=1", "none", place)
    try:
        with service.untouched():
            failed = service.deploy("--node", "node-1", name="second")
    finally:
        node.exec("umount", place)
    assert failed.code == 1, failed.err
    assert "no space left on device" in failed.err
    assert service.status()["swap"] is None


@pytest.mark.matrix
def test_an_image_that_was_removed_is_refused_for_a_deploy_and_for_a_rollback(service: Service) -> None:
    second = service.deploy("--node", "node-1", name="second", swap__keep_old_s="0")
    assert second.code == 0, second.err
    with without_images(service.nodes), service.untouched():
        third = service.deploy("--node", "node-2", name="third")
        back = service.cli("rollback", "stand-in")
    for refused in (third, back):
        assert refused.code == 5, refused.err
        assert "needs: image (sparkops up stand-in" in refused.err
        assert "--node node-2 brings it)" in refused.err
    assert service.cli("rollback", "stand-in").code == 0


@pytest.mark.matrix
def test_memory_that_does_not_come_back_ends_with_blue_again(service: Service) -> None:
    """Blue claims 3 GiB and takes almost none, so its end gives back less than the plan has counted on.

    Nothing else may take or free a GiB of this machine meanwhile, as another fleet does.
    """
    blue = service.deploy("--node", "node-2", "--mode", "beside", name="claims", memory__claim_gib="3")
    assert blue.code == 0, blue.err
    claim_gib = available_gib(service.nodes.node("node-2")) + 0.8  # more may be over the total of an idle machine
    claims = {"memory__claim_gib": f"{claim_gib:.1f}", "swap__memory_timeout_s": "2"}
    with service.load(rate=20, streams=4) as load:
        load.wait_for(10)
        failed = service.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", name="big", **claims)
        load.wait_for(load.report().good + 10)
    assert failed.code == 6, failed.err
    assert "node-2: memory not freed within 2 s: " in failed.err
    assert "next: Find the process that uses it (docker ps, nvidia-smi)" in failed.err
    assert f"{blue.json['release']} serves" in failed.err
    assert (load.report().failures, load.report().refusals) == ({}, 0), "requests wait for the old release"


@contextmanager
def local_clients(service: Service, count: int) -> Iterator[dict[str, int]]:
    """Let so many clients on the gateway's node ask meanwhile. Afterwards it has how often their requests ended how."""
    node, script = service.nodes.node(GATEWAY), LOCAL_CLIENTS.read_text()
    words = ("exec", "-i", node.container, "python3", "-c", script, str(service.port), str(count))
    outcomes: dict[str, int] = {}
    with subprocess.Popen([shell.client(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        yield outcomes
        process.stdin.close()
        outcomes.update(json.loads(process.stdout.read()))


@contextmanager
def taken(node: FleetNode) -> Iterator[None]:
    """Let a program have green's port meanwhile, without listening there."""
    program = TAKE.format(port=GREENS_PORT)
    begin = 'rm -f /run/taken; setsid python3 -c "$1" </dev/null >/dev/null 2>&1 & echo $!'
    number = node.exec("sh", "-c", begin, "sh", program)
    try:
        node.exec("sh", "-c", "timeout 300 sh -c 'until test -e /run/taken; do sleep 0.05; done'")
        yield
    finally:
        node.exec("kill", number)


@contextmanager
def without_images(nodes: RealFleet) -> Iterator[None]:
    """Take the tags from the stand-in's images meanwhile."""
    tags = {node: [line.split() for line in node.exec("sh", "-c", TAGS).splitlines()] for node in nodes.nodes}
    for node, images in tags.items():
        assert images
        for tag, image in images:
            node.exec("docker", "tag", image, f"kept-{tag.replace('/', '-')}")
            node.exec("docker", "rmi", tag)
    try:
        yield
    finally:
        for node, images in tags.items():
            for tag, _ in images:
                kept = f"kept-{tag.replace('/', '-')}"
                node.exec("docker", "tag", kept, tag)
                node.exec("docker", "rmi", kept)


def available_gib(node: FleetNode) -> float:
    """Memory that a new program could take."""
    line = next(line for line in node.exec("cat", "/proc/meminfo").splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) / 2**20
