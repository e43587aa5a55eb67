"""From what nodes say about their networks to the environment of each rank. tests/sparks.py makes the nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sparkops.errors import PlanRefused
from sparkops.node.network.commands import RDMA_OPTIONS
from sparkops.operator.fleet.network.topology import Fabric, Transport
from tests import sparks
from tests.sparks import DOWN_1, Function, Spark, port_0, port_1, spark

pytestmark = pytest.mark.local  # real shells read real files

Join = Callable[..., Fabric]


@pytest.fixture
def join(tmp_path: Path) -> Join:
    return partial(sparks.join, tmp_path)


def environment(interface: str, address: str, hca: str, **changes: str) -> dict[str, str]:
    """All that a rank over RoCE is told."""
    return {
        "VLLM_HOST_IP": address,
        "RAY_NODE_IP_ADDRESS": address,
        "RAY_OVERRIDE_NODE_IP_ADDRESS": address,
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "GLOO_SOCKET_IFNAME": interface,
        "TP_SOCKET_IFNAME": interface,
        "MN_IF_NAME": interface,
        "OMPI_MCA_btl_tcp_if_include": interface,
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": f"={hca}",
        "NCCL_IB_GID_INDEX": "3",
        "UCX_NET_DEVICES": hca,
        "NCCL_IGNORE_CPU_AFFINITY": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "RAY_memory_monitor_refresh_ms": "0",
        **changes,
    }


PORT_0 = "rocep1s0f0:1,roceP2p1s0f0:1"
PORT_1 = "rocep1s0f1:1,roceP2p1s0f1:1"


def envs(fabric: Fabric) -> dict[str, dict[str, str]]:
    return {name: dict(rank.env) for name, rank in fabric.ranks.items()}


def test_two_sparks_with_one_cable(join: Join) -> None:
    fabric = join(spark(1), spark(2))

    assert (fabric.transport, [str(link.subnet) for link in fabric.links]) == (
        Transport.ROCE,
        ["192.168.100.0/24", "192.168.101.0/24"],
    )
    assert envs(fabric) == {
        "a": environment("enp1s0f1np1", "192.168.100.10", PORT_1),
        "b": environment("enp1s0f1np1", "192.168.100.11", PORT_1),
    }
    assert [(rank.address, rank.interface, rank.options) for rank in fabric.ranks.values()] == [
        ("192.168.100.10", "enp1s0f1np1", RDMA_OPTIONS),
        ("192.168.100.11", "enp1s0f1np1", RDMA_OPTIONS),
    ]
    assert fabric.notes == ()


def test_a_cable_between_different_ports(join: Join) -> None:
    other = spark(2, functions=(*port_0("192.168.100.11/24", "192.168.101.11/24"), *DOWN_1))

    assert envs(join(spark(1), other)) == {
        "a": environment("enp1s0f1np1", "192.168.100.10", PORT_1),
        "b": environment("enp1s0f0np0", "192.168.100.11", PORT_0),
    }


def test_two_cables(join: Join) -> None:
    def spark_with(last: int) -> Spark:
        first = port_0(f"192.168.100.{last}/24", f"192.168.101.{last}/24")
        return spark(last, functions=(*first, *port_1(f"192.168.102.{last}/24", f"192.168.103.{last}/24")))

    hca = "rocep1s0f0:1,roceP2p1s0f0:1,rocep1s0f1:1,roceP2p1s0f1:1"
    assert envs(join(spark_with(1), spark_with(2))) == {
        "a": environment("enp1s0f0np0", "192.168.100.1", hca),
        "b": environment("enp1s0f0np0", "192.168.100.2", hca),
    }


def test_each_node_has_its_own_gid_index(join: Join) -> None:
    other = spark(2, functions=port_1("192.168.100.11/24", "192.168.101.11/24", row=5))

    assert envs(join(spark(1), other)) == {
        "a": environment("enp1s0f1np1", "192.168.100.10", PORT_1),
        "b": environment("enp1s0f1np1", "192.168.100.11", PORT_1, NCCL_IB_GID_INDEX="5"),
    }


def test_nccl_finds_the_rows_itself_where_devices_of_a_node_differ(join: Join) -> None:
    first, second = port_1("192.168.100.11/24", "192.168.101.11/24")
    other = spark(2, functions=(first, replace(second, row=5)))

    settings = {"NCCL_IB_GID_INDEX": "-1", "NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}
    assert envs(join(spark(1), other))["b"] == environment("enp1s0f1np1", "192.168.100.11", PORT_1, **settings)


def test_names_of_another_driver(join: Join) -> None:
    def spark_with(last: int) -> Spark:
        return Spark((Function("mlx5_0", "ens1f0np0", "0000:17:00.0", f"10.5.0.{last}/16", row=5),))

    assert envs(join(spark_with(1), spark_with(2)))["b"] == environment(
        "ens1f0np0", "10.5.0.2", "mlx5_0:1", NCCL_IB_GID_INDEX="5"
    )


def test_ranks_are_in_the_order_of_the_nodes_and_may_be_more_than_two(join: Join) -> None:
    fabric = join(spark(3), spark(1), spark(2))

    assert {name: rank.address for name, rank in fabric.ranks.items()} == {
        "a": "192.168.100.12",
        "b": "192.168.100.10",
        "c": "192.168.100.11",
    }


def test_a_port_that_leads_elsewhere_is_left_out_and_said(join: Join) -> None:
    storage = spark(1, functions=(*port_0("172.20.0.1/24", None), *port_1("192.168.100.10/24", "192.168.101.10/24")))

    fabric = join(storage, spark(2))

    assert envs(fabric)["a"] == environment("enp1s0f1np1", "192.168.100.10", PORT_1)
    assert fabric.notes == ("a: rocep1s0f0 (enp1s0f0np0) 172.20.0.1 reaches no other node over 172.20.0.0/24",)


def test_half_a_port_is_said(join: Join) -> None:
    one, two = (spark(last, functions=port_1(f"192.168.100.{last}/24", None)) for last in (1, 2))

    fabric = join(one, two)

    assert envs(fabric)["a"] == environment("enp1s0f1np1", "192.168.100.1", "rocep1s0f1:1")
    assert fabric.notes == tuple(
        f"{name}: rocep1s0f1 is used without its twin roceP2p1s0f1 (enP2p1s0f1np1): half of the port" for name in "ab"
    )


def test_devices_that_meet_in_another_order_are_said(join: Join) -> None:
    swapped = spark(2, functions=port_1("192.168.101.11/24", "192.168.100.11/24"))

    assert join(spark(1), swapped).notes == (
        "b: its devices are in 192.168.101.0/24, 192.168.100.0/24, in this order; "
        "those of the first node in 192.168.100.0/24, 192.168.101.0/24",
    )


def test_printing_it_shows_links_and_environments(join: Join) -> None:
    first, second, third, fourth, fifth = str(join(spark(1), spark(2))).splitlines()

    assert first == "network: RoCE, 2 links"
    assert second == (
        "  192.168.100.0/24: a rocep1s0f1 (enp1s0f1np1) 192.168.100.10 - b rocep1s0f1 (enp1s0f1np1) 192.168.100.11"
    )
    assert third.startswith("  192.168.101.0/24: a roceP2p1s0f1 (enP2p1s0f1np1) 192.168.101.10 - b ")
    assert fourth.startswith("  a: VLLM_HOST_IP=192.168.100.10 ")
    assert fifth.startswith("  b: VLLM_HOST_IP=192.168.100.11 ")
    assert "NCCL_IB_HCA==rocep1s0f1:1,roceP2p1s0f1:1" in fifth


NO_ROCE = Spark(driver="", tools=())
BESIDE = Spark(wires={"enP7s7": ("10.0.0.2/24", 1500, 10000)})
STEP = "Give both ends of a cable addresses of one subnet, or set `fabric: {allow_tcp: true}` in the inventory."


@pytest.mark.parametrize(
    ("one", "two", "why"),
    [
        (NO_ROCE, BESIDE, "a has no RDMA device; b has no RDMA device"),
        (
            Spark(DOWN_1),
            BESIDE,
            "a: rocep1s0f1 (enp1s0f1np1) is down, Disabled; a: roceP2p1s0f1 (enP2p1s0f1np1) is down, Disabled; "
            "b has no RDMA device",
        ),
        (
            Spark(port_1(None, None)[:1]),
            Spark(port_1("169.254.60.178/16", None)[:1]),
            "a: rocep1s0f1 (enp1s0f1np1) has no IPv4 address; "
            "b: rocep1s0f1 (enp1s0f1np1) has only the link-local address 169.254.60.178",
        ),
        (
            Spark(port_1("192.168.7.1/24", None)[:1]),
            Spark(port_1("192.168.8.1/24", None)[:1]),
            "a: rocep1s0f1 (enp1s0f1np1) has 192.168.7.1/24; b: rocep1s0f1 (enp1s0f1np1) has 192.168.8.1/24",
        ),
        (
            Spark(port_1("10.5.0.1/16", None, layer="InfiniBand")[:1]),
            Spark(port_1("10.5.0.2/16", None, layer="InfiniBand")[:1]),
            "a has no RDMA device; b has no RDMA device",
        ),
    ],
)
def test_without_roce_it_is_refused_with_the_reason(join: Join, one: Spark, two: Spark, why: str) -> None:
    with pytest.raises(PlanRefused) as refused:
        join(one, two)

    linked = "b: sudo ip addr add 192.168.100.178/24 dev enp1s0f1np1; set it in the netplan file too"
    step = linked if "link-local" in why else STEP
    assert (str(refused.value), refused.value.next_step) == (f"no RoCE between a and b: {why}", step)


def test_plain_tcp_is_taken_where_it_is_allowed_and_said(join: Join) -> None:
    fabric = join(NO_ROCE, BESIDE, allow_tcp=True)

    over_tcp = environment("enP7s7", "10.0.0.2", "", NCCL_NET="Socket", NCCL_IB_DISABLE="1", UCX_NET_DEVICES="enP7s7")
    expected = {name: value for name, value in over_tcp.items() if name not in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX")}
    assert envs(fabric)["b"] == expected
    assert (fabric.transport, fabric.ranks["a"].address, fabric.ranks["a"].options) == (Transport.TCP, "10.0.0.1", ())
    assert fabric.notes == (
        "plain TCP (fabric.allow_tcp): no RoCE between a and b: a has no RDMA device; b has no RDMA device",
    )


def test_plain_tcp_takes_the_fastest_network_that_the_nodes_share(join: Join) -> None:
    def spark_with(last: int) -> Spark:
        wires = {"wlP9s9": (f"10.2.0.{last}/24", 1500, -1), "enP7s7": (f"10.0.0.{last}/24", 1500, 10000)}
        return Spark(wires={**wires, "enx0": (f"10.1.0.{last}/24", 1500, 2500)})

    assert join(spark_with(1), spark_with(2), allow_tcp=True).ranks["b"].interface == "enP7s7"


def test_roce_is_taken_where_tcp_is_allowed_as_well(join: Join) -> None:
    assert join(spark(1), spark(2), allow_tcp=True).transport is Transport.ROCE


def test_nodes_without_any_network_in_common_are_refused(join: Join) -> None:
    with pytest.raises(PlanRefused, match=r"^no network joins a and b$"):
        join(Spark(), Spark(wires={"enP7s7": ("10.9.0.1/24", 1500, 10000)}), allow_tcp=True)
