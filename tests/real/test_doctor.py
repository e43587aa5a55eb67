"""doctor on real nodes: what is wrong with them is found and named, and looking changes nothing."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkops.operator.status.doctor.diagnosis import Diagnosis
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import Cli, Ran
from tests.real.test_fabric import listening

pytestmark = pytest.mark.fleet

# A container may not give its daemons a better score; DISK to SWAP are what the machine under all nodes is like, and
# HUB_LOGIN depends on whether an earlier test has left a model on a node.
EXPECTED = {"NO_LIVE_RESTORE", "OOM_SCORE", "DISK", "MEMORY", "SWAP", "HUB_LOGIN"}
GUARD, GATEWAY = "sparkops-guard", "sparkops-gateway"
NOBODY = "10.77.255.254"


def problems(ran: Ran) -> list[tuple[str, str]]:
    """Code and node of all that is found besides what is so on every test node."""
    findings = Diagnosis.model_validate_json(ran.out).findings
    return [(finding.code, finding.node) for finding in findings if finding.code not in EXPECTED]


@pytest.mark.usefixtures("untouched")
def test_sound_nodes_are_read_whole_and_left_alone(sparkops: Cli) -> None:
    ran = sparkops("doctor", "--json")

    assert (ran.code, problems(ran)) == (0, []), ran.err
    diagnosis = Diagnosis.model_validate_json(ran.out)
    assert [node.name for node in diagnosis.nodes] == ["node-1", "node-2"]
    for node in diagnosis.nodes:
        assert node.docker is not None
        assert int(node.docker.split(".")[0]) >= 20
        assert node.memory is not None
        assert node.memory.total_gib > 0
        assert node.disk_free_gib is not None
        assert node.clock_skew_s == 0
    assert [pair.reasons for pair in diagnosis.pairs] == [["node-1 has no RDMA device", "node-2 has no RDMA device"]]


def test_the_report_for_people_counts_and_says_what_to_do(sparkops: Cli) -> None:
    ran = sparkops("doctor")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].startswith("node-1 ")
    assert "no two nodes share a network for ranks" in ran.out
    assert ran.out.splitlines()[-1].endswith("warnings")


def test_an_unreachable_node_does_not_hide_the_other(with_inventory: Callable[..., Cli]) -> None:
    ran = with_inventory(lambda data: data["nodes"]["node-2"].update(address=NOBODY))("doctor", "--json")

    assert (ran.code, problems(ran)) == (1, [("UNREACHABLE", "node-2")])
    rows = Diagnosis.model_validate_json(ran.out).nodes
    assert [(row.reachable, row.docker is None) for row in rows] == [(True, False), (False, True)]


def test_a_user_who_may_not_use_docker_is_a_problem(nodes: RealFleet, with_inventory: Callable[..., Cli]) -> None:
    key = nodes.ssh_key.with_suffix(".pub").read_bytes()
    user = "id guest >/dev/null || useradd -m -p '*' guest"
    script = f"{user}; install -d -m 700 -o guest ~guest/.ssh; cat > ~guest/.ssh/authorized_keys"
    nodes.node("node-1").exec("sh", "-c", script, stdin=key)

    ran = with_inventory(lambda data: data["nodes"]["node-1"].update(user="guest"))("doctor", "--json")

    assert (ran.code, problems(ran)) == (1, [("UNREACHABLE", "node-1")])
    [finding] = [row for row in ran.json["findings"] if row["code"] == "UNREACHABLE"]
    assert finding["problem"] == "the user has no access to Docker"
    assert "group `docker`" in finding["next_step"]


def test_a_gpu_that_is_not_there_is_a_problem(with_inventory: Callable[..., Cli]) -> None:
    ran = with_inventory(lambda data: data["nodes"]["node-1"].update(gpu="runtime"))("doctor", "--json")

    missing = ["NO_DRIVER", "NO_TOOLKIT", "NO_EARLYOOM"]
    assert (ran.code, problems(ran)) == (1, [(code, "node-1") for code in missing])


@pytest.mark.matrix
def test_a_running_earlyoom_ends_its_finding(nodes: RealFleet, with_inventory: Callable[..., Cli]) -> None:
    ask = with_inventory(lambda data: data["nodes"]["node-1"].update(gpu="runtime"))
    with running(nodes.node("node-1"), "earlyoom"):
        codes = [code for code, _ in problems(ask("doctor", "--json"))]

    assert "NO_DRIVER" in codes
    assert "NO_EARLYOOM" not in codes


TWICE = """\
for name in sparkops-doctor-1 sparkops-doctor-2; do
  mkdir -p "/srv/models/$name"
  echo '{}' >"/srv/models/$name/config.json"
  printf '\\002\\000\\000\\000\\000\\000\\000\\000{}' >"/srv/models/$name/model.safetensors"
  echo '{"model": "a/b", "commit": "c0ffee"}' >"/srv/models/$name/.sparkops.json"
done
"""


@pytest.mark.matrix
def test_weights_held_twice_are_a_warning(nodes: RealFleet, sparkops: Cli) -> None:
    nodes.node("node-1").exec("sh", "-c", TWICE)
    try:
        findings = problems(sparkops("doctor", "--json"))
    finally:
        nodes.node("node-1").exec("sh", "-c", "rm -r /srv/models/sparkops-doctor-*")

    assert findings == [("WEIGHTS_TWICE", "node-1")]


def test_a_missing_cdi_spec_is_a_problem_and_a_fix_that_fails_is_reported(
    nodes: RealFleet, with_inventory: Callable[..., Cli]
) -> None:
    """The SSH user of the test nodes is not root and has no sudo."""
    ask = with_inventory(lambda data: data["nodes"]["node-1"].update(gpu="cdi"))
    begin = "printf '#!/bin/sh\n' >/usr/bin/nvidia-ctk; chmod +x /usr/bin/nvidia-ctk"
    nodes.node("node-1").exec("sh", "-c", begin)
    try:
        ran = ask("doctor", "--fix", "--yes", "--json")
        nodes.node("node-1").exec("sh", "-c", "mkdir -p /etc/cdi; echo 'kind: nvidia.com/gpu' >/etc/cdi/nvidia.yaml")
        given = ask("doctor", "--json")
    finally:
        nodes.node("node-1").exec("sh", "-c", "rm -rf /usr/bin/nvidia-ctk /etc/cdi")

    assert ("NO_CDI_SPEC", "node-1") in problems(ran)
    assert [(row["code"], row["done"]) for row in ran.json["fixes"]] == [("NO_CDI_SPEC", False)]
    assert "sudo" in ran.json["fixes"][0]["detail"]
    assert ("NO_CDI_SPEC", "node-1") not in problems(given)


@contextmanager
def running(node: FleetNode, program: str) -> Iterator[None]:
    """A process of that name on a node."""
    node.exec("sh", "-c", f"cp /bin/sleep /tmp/{program}; setsid /tmp/{program} 600 </dev/null >/dev/null 2>&1 &")
    try:
        yield
    finally:
        node.exec("sh", "-c", f"pkill -x {program}; rm /tmp/{program}")


@pytest.mark.matrix
@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("code", "container", "place"),
    [
        ("GUARD_DOWN", GUARD, "node-2"),
        ("GATEWAY_DOWN", GATEWAY, "node-1"),
    ],
)
def test_a_stopped_agent_is_started_by_fix(front: Cli, nodes: RealFleet, code: str, container: str, place: str) -> None:
    assert not {code for code, _ in problems(front("doctor", "--json"))} & {"GUARD_DOWN", "GATEWAY_DOWN"}
    nodes.node(place).exec("docker", "stop", container)
    try:
        diagnosed = front("doctor", "--json")
        unconfirmed = front("doctor", "--fix")
        fixed = front("doctor", "--fix", "--yes", "--json")
    finally:
        nodes.node(place).exec("docker", "start", container)

    assert (diagnosed.code, (code, place) in problems(diagnosed)) == (1, True)
    assert f"{place}: {code}: docker start {container}" in unconfirmed.err
    assert "--yes" in unconfirmed.err
    assert [(row["node"], row["code"], row["done"]) for row in fixed.json["fixes"]] == [(place, code, True)]
    assert (code, place) not in problems(fixed)


@pytest.mark.matrix
@pytest.mark.usefixtures("service")
def test_a_guard_that_hangs_is_silent_and_not_restarted(front: Cli, nodes: RealFleet) -> None:
    program = ("-f", "^python3 -m sparkops.guard$")  # not its parent, the container's init
    nodes.node("node-2").exec("pkill", "-STOP", *program)
    try:
        ran = front("doctor", "--json")
    finally:
        nodes.node("node-2").exec("pkill", "-CONT", *program)

    assert (ran.code, ("GUARD_SILENT", "node-2") in problems(ran)) == (1, True)
    assert [row["fixable"] for row in ran.json["findings"] if row["code"] == "GUARD_SILENT"] == [False]


@pytest.mark.usefixtures("service")
def test_an_address_of_the_gateway_that_leads_nowhere_is_a_warning(with_inventory: Callable[..., Cli]) -> None:
    ask = with_inventory(lambda data: data.update(gateway={"node": "node-1", "address": "127.0.0.2"}))

    assert ("GATEWAY_CLOSED", "node-1") in problems(ask("doctor", "--json"))


@pytest.mark.usefixtures("service")
def test_a_bundle_holds_the_fleet_and_none_of_its_keys(front: Cli, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    ran = front("doctor", "--bundle", file)

    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        texts = {
            entry.name.partition("/")[2]: opened.read().decode() for entry in tar if (opened := tar.extractfile(entry))
        }
    assert {"CONTENTS.txt", "versions.json", "doctor.json", "doctor.txt", "status.json"} <= texts.keys()
    for node in ("node-1", "node-2"):
        assert f"nodes/{node}/guard.log" in texts
        assert "stand-in" in json.loads(texts[f"nodes/{node}/events.json"])
    assert json.loads(texts["nodes/node-1/events.json"])["stand-in"]  # whose guard leads
    assert [name for name in texts if name.endswith("error.txt")] == []
    assert json.loads(texts["status.json"])["services"]
    assert "PRIVATE KEY" not in "".join(texts.values())
    assert [name for name in texts if name not in ran.err and name != "CONTENTS.txt"] == []


@pytest.mark.matrix
def test_docker_s_open_port_is_a_warning(nodes: RealFleet, sparkops: Cli) -> None:
    with listening(nodes.node("node-2"), 2375):
        ran = sparkops("doctor", "--json")

    assert (ran.code, problems(ran)) == (0, [("DOCKER_TCP", "node-2")])


def allow_tcp(data: dict[str, Any]) -> None:
    data["fabric"] = {"allow_tcp": True}


def test_a_pair_over_plain_tcp_is_shown_with_its_environment(with_inventory: Callable[..., Cli]) -> None:
    ran = with_inventory(allow_tcp)("doctor", "--json")

    assert (ran.code, problems(ran)) == (0, [])
    [pair] = Diagnosis.model_validate_json(ran.out).pairs
    assert (pair.transport, [len(link.ends) for link in pair.links]) == ("TCP", [2])
    assert {name: env["GLOO_SOCKET_IFNAME"] for name, env in pair.env.items()} == {"node-1": "eth0", "node-2": "eth0"}


@pytest.mark.matrix
def test_a_wrong_interface_in_the_inventory_is_a_problem(with_inventory: Callable[..., Cli]) -> None:
    def change(data: dict[str, Any]) -> None:
        allow_tcp(data)
        data["nodes"]["node-2"]["env"] = {"GLOO_SOCKET_IFNAME": "enp1s0f9"}

    ran = with_inventory(change)("doctor", "--json")

    assert (ran.code, problems(ran)) == (1, [("ENVIRONMENT", "node-2")])
