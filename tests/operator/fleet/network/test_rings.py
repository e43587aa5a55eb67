"""From what three and more nodes say about their networks to the environment of each rank: a switch, and rings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sparkops.config.serve import Serve
from sparkops.errors import PlanRefused
from sparkops.operator.fleet.network import checks, topology
from sparkops.operator.fleet.network.topology import Fabric, Transport
from tests import sparks
from tests.examples import node
from tests.sparks import DOWN_0, Spark, port_1, spark

pytestmark = pytest.mark.local  # real shells read real files

Join = Callable[..., Fabric]
ALL = "rocep1s0f0:1,roceP2p1s0f0:1,rocep1s0f1:1,roceP2p1s0f1:1"
OF_RINGS = ("NCCL_IB_SUBNET_AWARE_ROUTING", "NCCL_IB_MERGE_NICS", "NCCL_NET_PLUGIN", "NCCL_ALGO")
MP4 = Serve(tensor_parallel=4, executor="mp")


@pytest.fixture
def join(tmp_path: Path) -> Join:
    return partial(sparks.join, tmp_path)


def hops(fabric: Fabric) -> list[tuple[str, ...]]:
    return [link.nodes for link in fabric.hops]


def settings(fabric: Fabric, rank: str = "a") -> dict[str, str]:
    return {name: value for name, value in fabric.ranks[rank].env.items() if name in OF_RINGS}


def test_ranks_behind_a_switch_use_both_halves_of_a_port_and_nothing_else_special(join: Join) -> None:
    fabric = join(*(spark(number) for number in range(1, 5)))

    assert [(str(link.subnet), link.nodes) for link in fabric.links] == [
        ("192.168.100.0/24", ("a", "b", "c", "d")),
        ("192.168.101.0/24", ("a", "b", "c", "d")),
    ]
    assert {rank.env["NCCL_IB_HCA"] for rank in fabric.ranks.values()} == {"=rocep1s0f1:1,roceP2p1s0f1:1"}
    assert [rank.address for rank in fabric.ranks.values()] == [f"192.168.100.{last}" for last in range(10, 14)]
    assert (settings(fabric), fabric.complete, fabric.notes) == ({}, True, ())
    assert topology.suited(fabric, Serve(tensor_parallel=2, pipeline_parallel=2)) is fabric


def test_behind_a_switch_each_rank_is_tested_with_the_next_and_the_last_with_the_first(join: Join) -> None:
    fabric = join(spark(1), spark(2), spark(3))

    assert hops(fabric) == [pair for pair in (("a", "b"), ("b", "c"), ("c", "a")) for _ in range(2)]


def test_three_in_a_ring_meet_on_the_lan_and_select_ports_by_subnet(join: Join) -> None:
    fabric = join(*sparks.ring(3))

    assert (fabric.transport, len(fabric.links), fabric.complete) == (Transport.ROCE, 6, True)
    assert [rank.address for rank in fabric.ranks.values()] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    env = fabric.ranks["b"].env
    assert {env[name] for name in ("GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES", "MN_IF_NAME")} == {"enP7s7"}
    assert (env["NCCL_SOCKET_IFNAME"], env["VLLM_HOST_IP"], env["NCCL_IB_HCA"]) == ("=enP7s7", "10.0.0.2", f"={ALL}")
    assert settings(fabric) == {
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_NET_PLUGIN": "none",
    }
    assert fabric.notes == ("a ring of 3 nodes without a switch, whose ranks meet on 10.0.0.0/24",)


def test_four_in_a_ring_use_the_ring_of_nccl_alone(join: Join) -> None:
    fabric = join(*sparks.ring(4))

    assert settings(fabric, "d")["NCCL_ALGO"] == "Ring"
    assert hops(fabric) == [pair for pair in (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")) for _ in range(2)]
    assert not fabric.complete
    assert topology.suited(fabric, MP4) is fabric
    assert topology.suited(fabric, Serve(pipeline_parallel=4, executor="mp")) is fabric


def test_with_one_subnet_a_cable_nccl_merges_the_halves_of_a_port(join: Join) -> None:
    fabric = join(*sparks.ring(4, halves=False))

    assert settings(fabric)["NCCL_IB_MERGE_NICS"] == "1"
    assert fabric.ranks["a"].env["NCCL_IB_HCA"] == "=rocep1s0f0:1,rocep1s0f1:1"


@pytest.mark.parametrize(
    ("serve", "why", "step"),
    [
        (Serve(tensor_parallel=4, executor="ray"), "Ray does not keep the order of ranks", "Set serve.executor: mp"),
        (
            Serve(tensor_parallel=2, pipeline_parallel=2, executor="mp"),
            "with 2 x 2 ranks some would talk that no cable joins",
            "Set tensor_parallel or pipeline_parallel to 4 and the other one to 1, or use a switch.",
        ),
    ],
)
def test_ranks_that_no_cable_joins_are_refused_where_they_would_talk(
    join: Join, serve: Serve, why: str, step: str
) -> None:
    with pytest.raises(PlanRefused, match=why) as refused:
        topology.suited(join(*sparks.ring(4)), serve)

    assert refused.value.next_step == step


def test_ranks_take_the_order_of_the_cables_and_the_first_node_stays_rank_0(tmp_path: Path) -> None:
    facts = {f"n{number}": sparks.facts(tmp_path / str(number), one) for number, one in enumerate(sparks.ring(4), 1)}
    configs = {name: node() for name in facts}

    def ordered(*names: str) -> tuple[str, ...]:
        return topology.ordered(facts, configs, names)

    assert ordered("n1", "n2", "n3", "n4") == ("n1", "n2", "n3", "n4")
    assert ordered("n3", "n1", "n2", "n4") == ("n3", "n2", "n1", "n4")
    assert ordered("n1", "n3", "n2") == ("n1", "n3", "n2")
    assert ordered("n1", "n2", "n3", "unread") == ("n1", "n2", "n3", "unread")


def test_behind_a_switch_the_order_is_that_of_the_operator(tmp_path: Path) -> None:
    facts = {f"n{number}": sparks.facts(tmp_path / str(number), spark(number)) for number in range(1, 5)}

    order = ("n4", "n2", "n1", "n3")
    assert topology.ordered(facts, {name: node() for name in facts}, order) == order


def test_a_chain_names_the_nodes_that_no_cable_joins(join: Join) -> None:
    first, *others = sparks.ring(4)
    cut = replace(first, functions=(*first.functions[:2], *port_1(None, None)))

    with pytest.raises(PlanRefused, match=r"^no RoCE between d and a: .*a: rocep1s0f1 \(enp1s0f1np1\) has no IPv4"):
        join(cut, *others)


def test_three_of_a_ring_of_four_are_no_ring(join: Join) -> None:
    with pytest.raises(PlanRefused, match=r"^no RoCE between c and a: "):
        join(*sparks.ring(4)[:3])


def test_a_ring_needs_a_network_of_all_nodes_besides(join: Join) -> None:
    apart = [
        replace(one, wires={"enP7s7": (f"10.{number}.0.1/24", 1500, 10000)})
        for number, one in enumerate(sparks.ring(3))
    ]
    with pytest.raises(PlanRefused, match=r"^no network joins a and b and c: their cables form a ring") as refused:
        join(*apart)

    assert refused.value.next_step == "Connect all to one LAN: ip -br addr"


def test_the_ranks_of_a_ring_meet_on_the_interface_that_the_inventory_names(join: Join) -> None:
    wires = [{**one.wires, "eth9": (f"10.9.0.{number}/24", 1500, 1000)} for number, one in enumerate(sparks.ring(3), 1)]
    nodes = [replace(one, wires=own) for one, own in zip(sparks.ring(3), wires, strict=True)]
    ports = [{"device": name.partition(":")[0]} for name in ALL.split(",")]

    assert join(*nodes).ranks["a"].interface == "enP7s7"
    named = {name: {"fabric": [*ports, {"interface": "eth9"}]} for name in "abc"}
    assert join(*nodes, named=named).ranks["a"].interface == "eth9"
    assert join(*nodes, named={name: {"fabric": ports} for name in "abc"}).ranks["a"].interface == "enP7s7"


def test_plain_tcp_is_taken_where_cables_join_only_some_and_it_is_allowed(join: Join) -> None:
    fabric = join(*sparks.ring(4)[:3], allow_tcp=True)

    assert (fabric.transport, [link.nodes for link in fabric.links]) == (Transport.TCP, [("a", "b", "c")])


def test_a_cable_between_ports_of_one_number_is_said_once(join: Join) -> None:
    first, second, third = sparks.ring(3)
    port_0, port_1 = second.functions[:2], second.functions[2:]
    turned = tuple(
        replace(to, address=of.address) for to, of in zip((*port_0, *port_1), (*port_1, *port_0), strict=True)
    )

    notes = join(first, replace(second, functions=turned), third).notes

    assert [note for note in notes if "expected port 0 to port 1" in note] == [
        "b: the cable 10.20.0.0/24: a rocep1s0f0 (enp1s0f0np0) 10.20.0.11 - b rocep1s0f0 (enp1s0f0np0) 10.20.0.12 "
        "joins port 0 to port 0, expected port 0 to port 1",
        "c: the cable 10.20.2.0/24: b rocep1s0f1 (enp1s0f1np1) 10.20.2.12 - c rocep1s0f1 (enp1s0f1np1) 10.20.2.13 "
        "joins port 1 to port 1, expected port 0 to port 1",
    ]


def test_each_half_of_a_port_sends_once_and_receives_once_while_links_are_measured(tmp_path: Path) -> None:
    facts = {name: sparks.facts(tmp_path / name, one) for name, one in zip("abcd", sparks.ring(4), strict=True)}
    fabric = sparks.join(tmp_path, *sparks.ring(4))

    due = [*checks.bandwidths(fabric, facts)]

    servers = [check.node for check in due if check.title.endswith("server")]
    clients = [check.node for check in due if check.title.endswith("client")]
    assert (sorted(servers), sorted(clients)) == (["a", "a", "b", "b", "c", "c", "d", "d"],) * 2
    assert len({str(check.commands[0]) for check in due}) == len(due)


def test_a_broken_cable_of_a_ring_is_named_with_its_two_ends(join: Join) -> None:
    first, *others = sparks.ring(3)
    down = tuple(replace(one, up=False) if one.interface == "enp1s0f0np0" else one for one in first.functions)

    with pytest.raises(PlanRefused, match=r"a: the link 10\.20\.0\.0/24: a .* - b .* is broken: enp1s0f0np0 is down"):
        join(replace(first, functions=down), *others)


def test_a_node_beside_a_switch_is_named(join: Join) -> None:
    with pytest.raises(PlanRefused, match=r"^no RoCE between b and c: "):
        join(spark(1), spark(2), Spark((*DOWN_0, *port_1(None, None))))
