"""Links that are broken, and what an inventory says wrong: each is named, with the node where it is to be mended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import NodesFailed, PlanRefused, SparkopsError
from sparkops.operator.fleet.network import links
from sparkops.operator.fleet.network.topology import Fabric, Transport
from tests import sparks
from tests.sparks import Spark, port_0, port_1, spark

pytestmark = pytest.mark.local  # real shells read real files

Refuse = Callable[..., list[tuple[str, str]]]


@pytest.fixture
def join(tmp_path: Path) -> Callable[..., Fabric]:
    return partial(sparks.join, tmp_path)


@pytest.fixture
def refuse(join: Callable[..., Fabric]) -> Refuse:
    """Problem and next step of everything that is wrong."""

    def make(*nodes: Spark, **named: Any) -> list[tuple[str, str]]:
        with pytest.raises(SparkopsError) as refused:
            join(*nodes, **named)
        error = refused.value
        errors = error.errors if isinstance(error, NodesFailed) else [error]
        assert all(isinstance(one, PlanRefused) for one in errors)
        return [(str(one), one.next_step) for one in errors]

    return make


def second_port(number: int = 2, **changes: Any) -> Spark:
    """The other Spark, whose second twin differs."""
    first, second = port_1("192.168.100.11/24", "192.168.101.11/24")
    return spark(number, functions=(first, replace(second, **changes)))


TWINS = (
    "192.168.101.0/24: a roceP2p1s0f1 (enP2p1s0f1np1) 192.168.101.10 - b roceP2p1s0f1 (enP2p1s0f1np1) 192.168.101.11"
)


def test_a_port_that_is_down_at_one_end(refuse: Refuse) -> None:
    assert refuse(spark(1), second_port(up=False)) == [
        (
            f"b: the link {TWINS} is broken: enP2p1s0f1np1 is down there (Disabled)",
            "Check its cable, and: ip link show enP2p1s0f1np1",
        )
    ]


@pytest.mark.parametrize("rdma", [True, False], ids=["RoCE", "TCP"])
def test_an_interface_that_is_down_has_no_carrier(join: Callable[..., Fabric], rdma: bool) -> None:
    """The RDMA device of the port is still active, or the port has none."""
    [link, *_] = join(spark(1), spark(2)).links
    end = link.ends[1]
    down = replace(end, interface=replace(end.interface, up=False), device=end.device if rdma else None)

    [finding] = links.broken(replace(link, ends=(link.ends[0], down)), (), 0)

    assert (finding.code, finding.node) == ("LINK_DOWN", "b")
    assert finding.problem.endswith(" is broken: enp1s0f1np1 is down there (no carrier)")


def test_the_speed_of_a_link_is_0_if_one_end_does_not_report_it(join: Callable[..., Fabric]) -> None:
    def spark_with(last: int, speed: int) -> Spark:
        return Spark(wires={"enx0": (f"10.1.0.{last}/24", 1500, speed)})

    assert [
        join(spark_with(1, 2500), spark_with(2, speed), allow_tcp=True).links[0].speed_mbit_s for speed in (-1, 1000)
    ] == [
        0,
        1000,
    ]


def test_a_link_that_is_down_at_both_ends_is_one_without_a_cable(join: Callable[..., Fabric]) -> None:
    def spark_with(last: int) -> Spark:
        unused = port_0(f"192.168.102.{last}/24", f"192.168.103.{last}/24", up=False)
        return spark(last, functions=(*unused, *port_1(f"192.168.100.{last}/24", f"192.168.101.{last}/24")))

    fabric = join(spark_with(1), spark_with(2))

    assert [str(link.subnet) for link in fabric.links] == ["192.168.100.0/24", "192.168.101.0/24"]
    assert fabric.notes == ()


@pytest.mark.parametrize("swapped", [False, True])
def test_one_end_with_a_smaller_mtu(refuse: Refuse, swapped: bool) -> None:
    nodes = [spark(1), second_port(mtu=1500)]
    small, sizes = (
        ("a", "1500 at a enP2p1s0f1np1, 9000 at b") if swapped else ("b", "9000 at a enP2p1s0f1np1, 1500 at b")
    )

    assert refuse(*(reversed(nodes) if swapped else nodes)) == [
        (
            f"{small}: MTU of the link 192.168.101.0/24: {sizes} enP2p1s0f1np1; 9000 expected at each end",
            "sudo ip link set enP2p1s0f1np1 mtu 9000; set it in the netplan file too",
        )
    ]


def test_both_ends_with_the_mtu_that_interfaces_come_with(refuse: Refuse) -> None:
    one, two = (spark(last, functions=port_1(f"10.1.0.{last}/24", None, mtu=1500)) for last in (1, 2))

    assert [problem for problem, _ in refuse(one, two)] == [
        f"{name}: MTU of the link 10.1.0.0/24: 1500 at a enp1s0f1np1, 1500 at b enp1s0f1np1; 9000 expected at each end"
        for name in "ab"
    ]


def test_the_inventory_may_want_less(join: Callable[..., Fabric]) -> None:
    one, two = (spark(last, functions=port_1(f"10.1.0.{last}/24", None, mtu=4200)) for last in (1, 2))

    assert join(one, two, mtu=4200).links[0].mtu == 4200


def test_tcp_agrees_on_the_smaller_mtu_so_it_is_only_said(join: Callable[..., Fabric]) -> None:
    def spark_with(last: int, mtu: int) -> Spark:
        return Spark(wires={"enP7s7": (f"10.0.0.{last}/24", mtu, 10000)})

    fabric = join(spark_with(1, 9000), spark_with(2, 1500), allow_tcp=True)

    assert fabric.notes[1] == (
        "b: MTU of the link 10.0.0.0/24: 9000 at a enP7s7, 1500 at b enP7s7; 9000 expected at each end"
    )
    assert fabric.links[0].mtu == 1500


def test_the_two_halves_of_a_port_in_one_subnet_are_one_finding_with_the_commands(refuse: Refuse) -> None:
    one = spark(1, functions=port_1("192.168.100.10/24", "192.168.100.14/24"))
    two = spark(2, functions=port_1("192.168.100.11/24", "192.168.100.15/24"))

    assert refuse(one, two) == [
        (
            "a: the two halves of one port, rocep1s0f1 (enp1s0f1np1) 192.168.100.10 and roceP2p1s0f1 (enP2p1s0f1np1) "
            "192.168.100.14, are both in 192.168.100.0/24, as on b",
            "a: sudo ip addr add 192.168.101.14/24 dev enP2p1s0f1np1 && "
            "sudo ip addr del 192.168.100.14/24 dev enP2p1s0f1np1\n"
            "b: sudo ip addr add 192.168.101.15/24 dev enP2p1s0f1np1 && "
            "sudo ip addr del 192.168.100.15/24 dev enP2p1s0f1np1\n"
            "Set it in the netplan files too.",
        )
    ]


def test_halves_of_one_node_move_to_a_subnet_that_no_port_has(refuse: Refuse) -> None:
    twins = spark(2, functions=port_1("192.168.100.11/24", "192.168.100.12/24"))

    problem, step = refuse(spark(1), twins)[0]

    assert problem.startswith("b: the two halves of one port, ")
    assert step.startswith("b: sudo ip addr add 192.168.102.12/24 dev "), "spark 1 has a port in 192.168.101.0/24"


def test_a_port_without_a_cable_in_the_subnet_of_one_that_has_it(refuse: Refuse) -> None:
    unused = port_0("192.168.100.13/24", None, up=False)
    both = spark(2, functions=(*unused, *port_1("192.168.100.11/24", "192.168.101.11/24")))

    [(problem, _)] = refuse(spark(1), both)

    assert problem.startswith("b: rocep1s0f0 (enp1s0f0np0) 192.168.100.13 and rocep1s0f1 (enp1s0f1np1) 192.168.100.11 ")


def test_one_address_at_both_ends(refuse: Refuse) -> None:
    [(problem, step)] = refuse(spark(1), spark(1))[:1]

    assert problem.startswith("b: the link 192.168.100.0/24: a rocep1s0f1 (enp1s0f1np1) 192.168.100.10 - b rocep1s0f1 ")
    assert problem.endswith(" has the same address at both ends")
    assert step == "Set another address for enp1s0f1np1 there."


def test_ends_that_do_not_agree_on_their_subnet(refuse: Refuse) -> None:
    one = spark(1, functions=port_1("192.168.100.10/24", None))
    two = spark(2, functions=port_1("192.168.100.11/16", None))

    assert refuse(one, two) == [
        (
            f"{here}: enp1s0f1np1 has {address}, {other_node} enp1s0f1np1 has {other}",
            "Use the same prefix length at both ends, such as /24.",
        )
        for here, other_node, address, other in (
            ("a", "b", "192.168.100.10/24", "192.168.100.11/16"),
            ("b", "a", "192.168.100.11/16", "192.168.100.10/24"),
        )
    ]


def test_a_gid_table_without_the_row(tmp_path: Path) -> None:
    for name, number in (("a", 1), ("b", 2)):
        sparks.write(tmp_path / name, spark(number))
    (tmp_path / "b/sys/class/infiniband/rocep1s0f1/ports/1/gid_attrs/types/3").write_text("IB/RoCE v1\n")

    with pytest.raises(PlanRefused) as refused:
        sparks.join_trees(tmp_path, "a", "b")

    assert str(refused.value) == ("b: rocep1s0f1 has no RoCE v2 row for 192.168.100.11 of enp1s0f1np1 in its GID table")
    assert refused.value.next_step == "Set enp1s0f1np1 down and up again, then check: show_gids rocep1s0f1"


CORRECT = "Correct `fabric` of b in the inventory; `fabric: auto` reads it on the node."
INTERFACES = "lo, docker0, enp1s0f0np0, enP2p1s0f0np0, enp1s0f1np1, enP2p1s0f1np1, enP7s7"


@pytest.mark.parametrize(
    ("port", "problem"),
    [
        (
            {"device": "rocep1s0f9"},
            "RDMA device rocep1s0f9 not found, expected one of: rocep1s0f0, rocep1s0f1, roceP2p1s0f0, roceP2p1s0f1",
        ),
        ({"device": "rocep1s0f1", "interface": "enp9"}, f"interface enp9 not found, expected one of: {INTERFACES}"),
        ({"interface": "eth0"}, f"interface eth0 not found, expected one of: {INTERFACES}"),
        (
            {"device": "rocep1s0f1", "address": "192.168.100.12"},
            "enp1s0f1np1 has no IPv4 address 192.168.100.12, it has: 192.168.100.11",
        ),
        ({"device": "rocep1s0f0"}, "enp1s0f0np0 has no IPv4 address, it has: none"),
        (
            {"device": "rocep1s0f1", "gid_index": 5},
            "row 5 of rocep1s0f1 is not RoCE v2 with 192.168.100.11; row 3 is",
        ),
        (
            {"device": "rocep1s0f1", "interface": "enP7s7", "gid_index": 3},
            "row 3 of rocep1s0f1 is not RoCE v2 with 10.0.0.2; no row is",
        ),
    ],
)
def test_a_port_that_the_inventory_names_wrong(refuse: Refuse, port: dict[str, Any], problem: str) -> None:
    assert refuse(spark(1), spark(2), named={"b": {"fabric": [port]}})[0] == (f"b: {problem}", CORRECT)


def test_a_port_that_the_inventory_names_and_that_leads_nowhere(refuse: Refuse) -> None:
    other = spark(2, functions=port_1("192.168.100.11/24", "192.168.55.1/24"))
    named = {"b": {"fabric": [{"device": "rocep1s0f1"}, {"device": "roceP2p1s0f1"}]}}

    assert refuse(spark(1), other, named=named) == [
        (
            "b: roceP2p1s0f1 (enP2p1s0f1np1) 192.168.55.1 reaches no other node over 192.168.55.0/24",
            "Give its other end an address in 192.168.55.0/24, or leave it out of `fabric` in the inventory.",
        )
    ]


def test_a_port_that_is_named_and_down_at_both_ends(refuse: Refuse) -> None:
    one, two = (spark(last, functions=port_1(f"10.1.0.{last}/24", None, up=False)) for last in (1, 2))

    [(problem, _), *_] = refuse(one, two, named={"b": {"fabric": [{"device": "rocep1s0f1"}]}})

    assert problem.endswith(" is broken: enp1s0f1np1 is down there (Disabled)")


def test_named_ports_are_used_alone_and_in_place_of_what_would_be_read(join: Callable[..., Fabric]) -> None:
    named = {
        "a": {"fabric": [{"device": "roceP2p1s0f1"}]},
        "b": {"fabric": [{"device": "roceP2p1s0f1", "interface": "enP2p1s0f1np1", "address": "192.168.101.11"}]},
    }

    ranks = join(spark(1), spark(2), named=named).ranks

    assert [(rank.address, rank.env["NCCL_IB_HCA"]) for rank in ranks.values()] == [
        ("192.168.101.10", "=roceP2p1s0f1:1"),
        ("192.168.101.11", "=roceP2p1s0f1:1"),
    ]


def test_a_link_local_address_is_used_when_it_is_named(join: Callable[..., Fabric]) -> None:
    one, two = (Spark(port_1(f"169.254.9.{last}/16", None)[:1]) for last in (1, 2))
    named = {name: {"fabric": [{"device": "rocep1s0f1"}]} for name in "ab"}

    assert join(one, two, named=named).ranks["b"].address == "169.254.9.2"


def test_an_interface_for_plain_tcp_can_be_named(join: Callable[..., Fabric]) -> None:
    def spark_with(last: int) -> Spark:
        return Spark(wires={"enP7s7": (f"10.0.0.{last}/24", 1500, 10000), "enx0": (f"10.1.0.{last}/24", 1500, 2500)})

    named = {"b": {"fabric": [{"interface": "enx0"}]}}

    fabric = join(spark_with(1), spark_with(2), named=named, allow_tcp=True)

    assert (fabric.transport, [rank.interface for rank in fabric.ranks.values()]) == (Transport.TCP, ["enx0", "enx0"])


def test_a_named_interface_that_every_node_has_for_itself(refuse: Refuse) -> None:
    named = {"b": {"fabric": [{"interface": "docker0"}]}}

    [(problem, _)] = refuse(Spark(), Spark(), named=named, allow_tcp=True)

    assert (
        problem
        == "b: the link 172.17.0.0/16: a docker0 172.17.0.1 - b docker0 172.17.0.1 has the same address at both ends"
    )


ENV = "Correct `env` of b in the inventory; absent variables are derived from the node."
UP = "lo 127.0.0.1, docker0 172.17.0.1, enp1s0f1np1 192.168.100.11, enP2p1s0f1np1 192.168.101.11, enP7s7 10.0.0.2"


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (
            {"GLOO_SOCKET_IFNAME": "enp9s0"},
            f"GLOO_SOCKET_IFNAME=enp9s0 names no interface that is up with an IPv4 address; these are: {UP}",
        ),
        (
            {"NCCL_SOCKET_IFNAME": "=enp1s0f1"},
            f"NCCL_SOCKET_IFNAME==enp1s0f1 names no interface that is up with an IPv4 address; these are: {UP}",
        ),
        (
            {"GLOO_SOCKET_IFNAME": "enP7s7"},
            "GLOO_SOCKET_IFNAME names no common network of the nodes: "
            "a enp1s0f1np1 (192.168.100.10/24), b enP7s7 (10.0.0.2/24)",
        ),
        (
            {"VLLM_HOST_IP": "192.168.100.99"},
            f"VLLM_HOST_IP=192.168.100.99 names no interface that is up with an IPv4 address; these are: {UP}",
        ),
        (
            {"NCCL_IB_HCA": "=rocep1s0f0"},
            "NCCL_IB_HCA==rocep1s0f0 names no device that is up; these are: rocep1s0f1, roceP2p1s0f1",
        ),
        (
            {"NCCL_IB_HCA": "mlx5"},
            "NCCL_IB_HCA=mlx5 names no device that is up; these are: rocep1s0f1, roceP2p1s0f1",
        ),
        (
            {"NCCL_IB_HCA": "=rocep1s0f1", "NCCL_IB_GID_INDEX": "1"},
            "NCCL_IB_GID_INDEX=1 is not a row for RoCE v2 over IPv4 of rocep1s0f1; its rows are: 3",
        ),
    ],
)
def test_an_environment_that_the_inventory_says_wrong(refuse: Refuse, env: dict[str, str], problem: str) -> None:
    assert refuse(spark(1), spark(2), named={"b": {"env": env}}) == [(f"b: {problem}", ENV)]


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_IB_GID_INDEX": "-1"},
        {"NCCL_SOCKET_IFNAME": "enp1s0f1"},
        {"NCCL_SOCKET_IFNAME": "^docker,lo"},
        {"NCCL_IB_HCA": "roce"},
        {"NCCL_IB_HCA": "^rocep1s0f0"},
        {"NCCL_DEBUG": "WARN", "OMP_NUM_THREADS": "4"},
    ],
)
def test_an_environment_of_the_inventory_goes_before_what_is_derived(
    join: Callable[..., Fabric], env: dict[str, str]
) -> None:
    ranks = join(spark(1), spark(2), named={"b": {"env": env}}).ranks

    assert ranks["b"].env.items() >= env.items()
    assert not ranks["a"].env.items() & env.items()
