"""What is tried between nodes before a model is loaded, and what the answers mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Completed
from sparkops.errors import CommandFailed, ConnectionLost, SparkopsError
from sparkops.node.network.finding import Severity
from sparkops.operator.fleet.network import checks
from sparkops.operator.fleet.network.checks import Check, Ranks
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.topology import Fabric
from tests import sparks
from tests.node.network.test_commands import WRITE_BW
from tests.sparks import Spark, spark

pytestmark = pytest.mark.local  # real shells read real files

LINK = "192.168.100.0/24: a rocep1s0f1 (enp1s0f1np1) 192.168.100.10 - b rocep1s0f1 (enp1s0f1np1) 192.168.100.11"
A_TO_B = "a rocep1s0f1 (enp1s0f1np1) 192.168.100.10 to b rocep1s0f1 (enp1s0f1np1) 192.168.100.11"
Pair = tuple[Fabric, dict[str, NodeFabric]]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Two Sparks with one cable."""
    return two_sparks(tmp_path, spark(1), spark(2))


def two_sparks(root: Path, one: Spark, two: Spark, **rules: Any) -> Pair:
    facts = {name: sparks.facts(root / name, item) for name, item in {"a": one, "b": two}.items()}
    return sparks.join(root, one, two, **rules), facts


def failed(check: Check, output: str, code: int = 1, at: int = 0) -> CommandFailed:
    """One of its commands, as it ends when it prints this."""
    return CommandFailed(Completed(check.node, check.commands[at], code, output, ""))


def judge(check: Check, *outcomes: str | SparkopsError) -> list[tuple[str, str, str]]:
    return [(item.code, item.node, item.problem) for item in check.judge(outcomes)]


def test_each_link_is_tried_in_both_directions_with_small_and_large_packets(pair: Pair) -> None:
    found = [*checks.paths(*pair)]

    assert [(check.node, [command.argv[-1] for command in check.commands]) for check in found] == [
        ("a", ["192.168.100.11"] * 2),
        ("b", ["192.168.100.10"] * 2),
        ("a", ["192.168.101.11"] * 2),
        ("b", ["192.168.101.10"] * 2),
    ]
    assert str(found[0]).splitlines() == [
        "a: b answers over 192.168.100.0/24, to 9000 bytes in one piece",
        "      $ ping -n -c 2 -i 0.2 -W 1 -I 192.168.100.10 192.168.100.11",
        "      $ ping -n -M do -s 8972 -c 2 -i 0.2 -W 1 -I 192.168.100.10 192.168.100.11",
    ]


# The words are those of iputils' ping.
LOST = """\
PING 192.168.100.11 (192.168.100.11) from 192.168.100.10 : 8972(9000) bytes of data.

--- 192.168.100.11 ping statistics ---
2 packets transmitted, 0 received, 100% packet loss, time 201ms
"""


def test_a_link_that_answers_is_well(pair: Pair) -> None:
    assert judge(next(checks.paths(*pair)), "2 received", "2 received") == []


def test_a_link_that_does_not_answer_is_named(pair: Pair) -> None:
    check, *_ = checks.paths(*pair)

    problem = (
        f"the link 192.168.100.0/24 is broken: no reply from {A_TO_B}: "
        "2 packets transmitted, 0 received, 100% packet loss, time 201ms"
    )
    assert judge(check, failed(check, LOST)) == [("NO_ANSWER", "a", problem)]


def test_a_link_that_loses_large_packets_is_named(pair: Pair) -> None:
    check, *_ = checks.paths(*pair)

    problem = f"the link 192.168.100.0/24 loses packets of 9000 bytes from {A_TO_B}: ping: sendmsg: Message too long"
    assert judge(check, "2 received", failed(check, "ping: sendmsg: Message too long\n\n", 2, at=1)) == [
        ("MTU_PATH", "a", problem)
    ]


def test_a_ping_that_never_ends_is_no_answer(pair: Pair) -> None:
    check, *_ = checks.paths(*pair)

    [(code, _, problem)] = judge(check, ConnectionLost("a", "`ping` did not end within 5 s"))

    assert (code, problem.endswith("a: `ping` did not end within 5 s")) == ("NO_ANSWER", True)


def test_blank_lines_at_the_end_of_an_error_are_not_its_reason() -> None:
    assert checks.why(SparkopsError("ping: sendmsg: Message too long\n \n")) == "ping: sendmsg: Message too long"
    assert checks.why(SparkopsError(" \n")) == "no output"


def test_without_ping_nothing_is_tried_and_that_is_said(tmp_path: Path) -> None:
    pair = two_sparks(tmp_path, spark(1), spark(2, tools=()))

    assert {check.node for check in checks.paths(*pair)} == {"a"}
    assert [(item.code, item.node, item.severity) for item in checks.equipment(*pair)] == [
        ("NO_PING", "b", Severity.WARNING)
    ]


def test_alike_nodes_have_nothing_to_be_said_of_them(pair: Pair) -> None:
    assert [*checks.equipment(*pair), *checks.same_driver(*pair)] == []


def test_another_driver_is_named(tmp_path: Path) -> None:
    [finding] = checks.same_driver(*two_sparks(tmp_path, spark(1), spark(2, driver="580.178.03")))

    assert (finding.code, finding.node, finding.problem) == (
        "DRIVER",
        "b",
        "the NVIDIA driver differs: 580.95.05 at a, 580.178.03 at b",
    )


def test_devices_that_no_container_can_open_are_named(pair: Pair) -> None:
    network, facts = pair
    facts["b"] = replace(facts["b"], rdma_files=frozenset({"rdma_cm"}))

    assert [(item.code, item.node) for item in checks.equipment(network, facts)] == [("NO_UVERBS", "b")]


IMAGE: dict[str, Any] = {
    "Id": "sha256:1",
    "Os": "linux",
    "Architecture": "arm64",
    "RootFS": {"Layers": ["a"]},
    "Config": {},
}


def test_one_content_under_two_ids_is_one_image() -> None:
    assert [*checks.same_image("x:1", "x", {"a": IMAGE, "b": {**IMAGE, "Id": "sha256:2"}})] == []


def test_two_builds_under_one_tag_are_two_images() -> None:
    [finding] = checks.same_image("sparkops/vllm:1", "x", {"a": IMAGE, "b": {**IMAGE, "RootFS": {"Layers": ["b"]}}})

    assert (finding.code, finding.node) == ("IMAGE", "b")
    assert finding.problem.startswith("the content of sparkops/vllm:1 differs: ")
    assert finding.next_step == "sparkops build x --once --node a --node b"


def test_an_image_that_is_not_there_is_named() -> None:
    [finding] = checks.same_image("x:1", "x", {"a": IMAGE, "b": None})

    assert (finding.code, finding.node, finding.problem) == ("NO_IMAGE", "b", "image not found: x:1")


def rendezvous(pair: Pair, *, ray: bool = True) -> list[Check]:
    ranks = Ranks("x:1", "x", 29501, (6379,), ray)
    return [*checks.rendezvous(pair[0], ranks, {"a": "sha256:1", "b": "sha256:2"}, b"")]


def test_every_rank_calls_rank_0_from_inside_its_image(pair: Pair) -> None:
    found = rendezvous(pair)

    arguments = [json.loads(check.commands[0].argv[-1]) for check in found]
    assert [check.node for check in found] == ["a", "b"]
    addresses = ["192.168.100.10", "192.168.100.11"]
    assert [(item["rank"], item["addresses"]) for item in arguments] == [(0, addresses), (1, addresses)]
    assert [(item["port"], item["ports"]) for item in arguments] == [(29501, [6379])] * 2
    assert "sha256:2" in found[1].commands[0].argv
    assert "--device=/dev/infiniband" in found[1].commands[0].argv


MET = {"ray": "2.60.0", "memlock": -1, "rdma": ["rdma_cm", "uverbs0"]}


def answer(**changes: Any) -> str:
    return json.dumps({**MET, "taken": [], "met": [0], "problem": "", **changes}) + "\n"


def test_a_rank_that_met_the_others_is_well(pair: Pair) -> None:
    assert [judge(check, answer()) for check in rendezvous(pair)] == [[], []]


@pytest.mark.parametrize(
    ("rank", "output", "code", "problem"),
    [
        (0, {"taken": [6379]}, "PORT_TAKEN", "port 6379 is in use"),
        (
            0,
            {"problem": "[Errno 98] Address already in use"},
            "PORT_TAKEN",
            "port 29501 is in use, where rank 0 listens for the others",
        ),
        (
            0,
            {"problem": "[Errno 99] Cannot assign requested address"},
            "NO_MEETING",
            "rank 0 cannot listen on 192.168.100.10:29501: [Errno 99] Cannot assign requested address",
        ),
        (
            1,
            {"problem": "timed out"},
            "NO_MEETING",
            "rank 1 cannot reach 192.168.100.10:29501, rank 0 on a, from 192.168.100.11: timed out",
        ),
        (
            1,
            {"memlock": 8388608},
            "MEMLOCK",
            "containers may lock 8388608 bytes of memory, but RDMA needs an unlimited amount",
        ),
        (
            0,
            {"ray": "2.51.2"},
            "RAY_OLD",
            "Ray 2.51.2 in the image has no token authentication, expected 2.52 or newer",
        ),
        (1, {"rdma": ["rdma_cm"]}, "NO_UVERBS", "containers have no /dev/infiniband/uverbs*"),
    ],
)
def test_what_a_rank_lacks_is_named(pair: Pair, rank: int, output: dict[str, Any], code: str, problem: str) -> None:
    check = rendezvous(pair)[rank]

    assert judge(check, answer(**output)) == [(code, "ab"[rank], problem)]


def test_an_old_ray_does_not_matter_where_vllm_joins_the_ranks(pair: Pair) -> None:
    assert judge(rendezvous(pair, ray=False)[0], answer(ray="2.51.2")) == []


def test_over_plain_tcp_a_rank_needs_no_rights(tmp_path: Path) -> None:
    beside = Spark(wires={"enP7s7": ("10.0.0.2/24", 1500, 10000)})
    check = rendezvous(two_sparks(tmp_path, Spark(), beside, allow_tcp=True))[1]

    assert judge(check, answer(memlock=8388608, rdma=[])) == []
    assert "--device=/dev/infiniband" not in check.commands[0].argv


@pytest.mark.parametrize("outcome", ["", "no JSON", ConnectionLost("b", "`docker run` did not end within 10 s")])
def test_a_container_that_says_nothing_is_named(pair: Pair, outcome: str | SparkopsError) -> None:
    [(code, node, problem)] = judge(rendezvous(pair)[1], outcome)

    assert (code, node) == ("NO_CONTAINER", "b")
    assert problem.startswith("no test in a container of the image: ")


def test_all_links_are_measured_at_once_each_on_its_own_port(pair: Pair) -> None:
    found = [*checks.bandwidths(*pair)]

    assert [(check.node, check.title) for check in found] == [
        ("a", "bandwidth over 192.168.100.0/24, server"),
        ("b", "bandwidth over 192.168.100.0/24, client"),
        ("a", "bandwidth over 192.168.101.0/24, server"),
        ("b", "bandwidth over 192.168.101.0/24, client"),
    ]
    assert ["18515" in check.commands[0].argv for check in found] == [True, True, False, False]
    assert ["18516" in check.commands[0].argv for check in found] == [False, False, True, True]


def measured(pair: Pair, outcome: str | SparkopsError) -> Sequence[tuple[str, str, str]]:
    server, client, *_ = checks.bandwidths(*pair)
    assert judge(server, outcome) == []  # what is wrong there, the client tells as well
    return judge(client, outcome)


def test_what_a_twin_usually_carries_is_well(pair: Pair) -> None:
    assert measured(pair, WRITE_BW) == []


def test_a_slow_link_is_said_and_does_not_stop_a_deploy(pair: Pair) -> None:
    _, client, *_ = checks.bandwidths(*pair)

    [finding] = client.judge([WRITE_BW.replace("92.56", "13.49")])

    assert (finding.code, finding.severity) == ("SLOW_LINK", Severity.WARNING)
    assert finding.problem == f"the link {LINK} carries 13.49 Gbit/s, expected 90"


def test_a_link_that_carries_no_rdma_is_named(pair: Pair) -> None:
    _, client, *_ = checks.bandwidths(*pair)
    output = "Failed to modify QP 261 to RTR\nUnable to Connect the HCA's through the link"

    why = "Unable to Connect the HCA's through the link"
    assert measured(pair, failed(client, output)) == [("NO_RDMA", "b", f"the link {LINK} carries no RDMA: {why}")]
    assert measured(pair, "")[0][:2] == ("NO_RDMA", "b")


@pytest.mark.parametrize("tools", [(), ("ping",)])
def test_nothing_is_measured_where_perftest_is_not_installed(tmp_path: Path, tools: tuple[str, ...]) -> None:
    assert [*checks.bandwidths(*two_sparks(tmp_path, spark(1), spark(2, tools=tools)))] == []


@pytest.mark.parametrize(("limit", "count"), [(64, 0), (8192, 4), (None, 4)])
def test_nothing_is_measured_by_a_user_who_may_not_lock_memory(pair: Pair, limit: int | None, count: int) -> None:
    network, facts = pair
    facts["b"] = replace(facts["b"], memlock_kib=limit)

    assert len([*checks.bandwidths(network, facts)]) == count


def test_a_slower_network_is_measured_by_its_own_speed(tmp_path: Path) -> None:
    pair = two_sparks(tmp_path, spark(1), spark(2))
    network, facts = pair
    [link, *_] = network.links
    slow = tuple(replace(end, interface=replace(end.interface, speed_mbit_s=25000)) for end in link.ends)

    assert (
        measured((replace(network, links=(replace(link, ends=slow),)), facts), WRITE_BW.replace("92.56", "22.6")) == []
    )


def test_where_rank_0_cannot_listen_the_others_are_no_further_problem() -> None:
    taken = checks.PORT_TAKEN.at("a", "port 29501 is in use, where rank 0 listens for the others", "")
    echo = checks.NO_MEETING.at("b", "rank 1 cannot reach rank 0", "")
    other = checks.MEMLOCK.at("b", "containers may lock little", "")

    assert checks.without_echoes([taken, echo, other]) == [taken, other]
    assert checks.without_echoes([echo, other]) == [echo, other]
