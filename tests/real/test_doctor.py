"""doctor on real nodes: what is wrong with them is found and named, and looking changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkops.plan.diagnosis import Diagnosis
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import Cli, Ran
from tests.real.test_fabric import DEADLINE_S, listening

pytestmark = pytest.mark.fleet

# A container may not give its daemons a better score; the others are what the machine under all nodes is like.
EXPECTED = {"OOM_SCORE", "DISK", "MEMORY"}
NOBODY = "10.77.255.254"


def problems(ran: Ran) -> list[tuple[str, str]]:
    """Code and node of all that is found besides what is so on every test node."""
    found = Diagnosis.model_validate_json(ran.out).findings
    return [(each.code, each.node) for each in found if each.code not in EXPECTED]


@pytest.mark.usefixtures("untouched")
def test_sound_nodes_are_read_whole_and_left_alone(sparkops: Cli) -> None:
    ran = sparkops("doctor", "--json")

    assert (ran.code, problems(ran)) == (0, []), ran.err
    assert ran.took_s < DEADLINE_S
    found = Diagnosis.model_validate_json(ran.out)
    assert [node.name for node in found.nodes] == ["node-1", "node-2"]
    for node in found.nodes:
        assert node.docker is not None
        assert int(node.docker.split(".")[0]) >= 20
        assert node.memory is not None
        assert node.memory.total_gib > 0
        assert node.disk_free_gib is not None
        assert node.clock_skew_s == 0
    assert [pair.reasons for pair in found.pairs] == [["node-1 has no RDMA device", "node-2 has no RDMA device"]]


def test_the_report_for_people_counts_and_says_what_to_do(sparkops: Cli) -> None:
    ran = sparkops("doctor")

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0].startswith("node-1 ")
    assert "no network for ranks joins any two nodes" in ran.out
    assert ran.out.splitlines()[-1].endswith("warnings")


def test_an_unreachable_node_does_not_hide_the_other(with_inventory: Callable[..., Cli]) -> None:
    ran = with_inventory(lambda data: data["nodes"]["node-2"].update(address=NOBODY))("doctor", "--json")

    assert (ran.code, problems(ran)) == (1, [("UNREACHABLE", "node-2")])
    assert ran.took_s < DEADLINE_S
    rows = Diagnosis.model_validate_json(ran.out).nodes
    assert [(row.reachable, row.docker is None) for row in rows] == [(True, False), (False, True)]


def test_a_user_who_may_not_use_docker_is_a_problem(nodes: RealFleet, with_inventory: Callable[..., Cli]) -> None:
    key = nodes.ssh_key.with_suffix(".pub").read_bytes()
    user = "id guest >/dev/null || useradd -m -p '*' guest"
    script = f"{user}; install -d -m 700 -o guest ~guest/.ssh; cat > ~guest/.ssh/authorized_keys"
    nodes.node("node-1").exec("sh", "-c", script, stdin=key)

    ran = with_inventory(lambda data: data["nodes"]["node-1"].update(user="guest"))("doctor", "--json")

    assert (ran.code, problems(ran)) == (1, [("UNREACHABLE", "node-1")])
    [finding] = [each for each in ran.json["findings"] if each["code"] == "UNREACHABLE"]
    assert finding["problem"] == "the user may not use Docker"
    assert "group `docker`" in finding["next_step"]


def test_a_gpu_that_is_not_there_is_a_problem(with_inventory: Callable[..., Cli]) -> None:
    ran = with_inventory(lambda data: data["nodes"]["node-1"].update(gpu="runtime"))("doctor", "--json")

    assert (ran.code, problems(ran)) == (1, [("NO_DRIVER", "node-1"), ("NO_TOOLKIT", "node-1")])


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


def test_a_wrong_interface_in_the_inventory_is_a_problem_in_seconds(with_inventory: Callable[..., Cli]) -> None:
    def change(data: dict[str, Any]) -> None:
        allow_tcp(data)
        data["nodes"]["node-2"]["env"] = {"GLOO_SOCKET_IFNAME": "enp1s0f9"}

    ran = with_inventory(change)("doctor", "--json")

    assert (ran.code, problems(ran)) == (1, [("ENVIRONMENT", "node-2")])
    assert ran.took_s < DEADLINE_S
