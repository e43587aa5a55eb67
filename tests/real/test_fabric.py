"""The network between two real nodes, as it is and with one thing wrong: each is found and named.

The nodes have no RDMA. A cable of their own is made between them, with the names of two Sparks' ports, and the tree of
tests/sparks.py stands for what the driver of a ConnectX-7 would say: addresses, MTU and packets are real.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.fabric import FabricRules as Rules
from sparkops.config.inventory import Fleet
from sparkops.config.node import NodeConfig
from sparkops.errors import PlanRefused
from sparkops.node.network.finding import Finding
from sparkops.operator.fleet.connected import Connected, connect
from sparkops.operator.fleet.network import preflight, topology
from sparkops.operator.fleet.network.checks import Ranks
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.topology import Fabric, Transport
from tests import image_layers, sparks
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.fleet.shell import client, docker, pipe, run
from tests.real.program import Cli
from tests.sparks import Function, Spark

pytestmark = pytest.mark.fleet

TCP = Rules(allow_tcp=True)
TREE = "/run/sparkops-test-spark"
PORTS = {"node-1": "enp1s0f0np0", "node-2": "enp1s0f1np1"}
ADDRESSES = {"node-1": "192.168.100.1/24", "node-2": "192.168.100.2/24"}


@pytest.fixture
def connected(fleet: Fleet) -> Iterator[Connected]:
    with connect(fleet) as both:
        yield both


@pytest.fixture
def cable(nodes: RealFleet, tmp_path: Path) -> Iterator[None]:
    """A link between the first port of node-1 and the second one of node-2, which both hold for RoCE."""
    one, two = nodes.nodes[:2]
    pids = [docker("inspect", "--format", "{{.State.Pid}}", node.container) for node in (one, two)]
    ends = [("enp1s0f0np0", "netns", pids[0]), ("enp1s0f1np1", "netns", pids[1])]
    run("ip", "link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
    try:
        for number, node in enumerate((one, two)):
            _dress(node, tmp_path / node.name, f"f{number}", f"np{number}")
        yield
    finally:
        one.exec("ip", "link", "del", "enp1s0f0np0")
        for node in (one, two):
            node.exec("rm", "-r", TREE)
            node.exec("iptables", "-w", "-t", "mangle", "-F", "INPUT")


def _dress(node: FleetNode, tree: Path, function: str, port: str) -> None:
    """Give the port its address and MTU, and put the tree of its RDMA device on the node."""
    name, address = PORTS[node.name], ADDRESSES[node.name]
    node.exec("ip", "addr", "add", address, "dev", name)
    node.exec("ip", "link", "set", name, "mtu", "9000", "up")
    device = Function(f"rocep1s0{function}", f"enp1s0{function}{port}", f"0000:01:00.{function[1]}", address)
    sparks.write_devices(tree, Spark((device,)))
    node.exec("mkdir", TREE)
    enter = (client(), "exec", "--interactive", node.container, "tar", "-x", "-C", TREE)
    pipe(("tar", "-C", str(tree), "-c", "."), enter)


def read(connected: Connected, root: str = "") -> dict[str, NodeFabric]:
    """Return the network of every node as it is now."""
    return connected.all(lambda member: preflight.facts_of(member, root))


def over_tcp(connected: Connected, **named: Mapping[str, Any]) -> Fabric:
    configs = {name: config_of(node, named.get(name, {})) for name, node in connected.fleet.nodes.items()}
    return topology.join(read(connected), configs, TCP)


def config_of(node: NodeConfig, changes: Mapping[str, Any]) -> NodeConfig:
    return NodeConfig.model_validate({**node.model_dump(exclude_unset=True), **changes})


def over_cable(connected: Connected) -> Fabric:
    return topology.join(read(connected, TREE), connected.fleet.nodes, Rules())


def codes(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(finding.code, finding.node) for finding in findings]


def test_nodes_without_roce_are_refused_with_the_reason(connected: Connected) -> None:
    with pytest.raises(
        PlanRefused, match=r"^no RoCE between node-1 and node-2: node-1 has no RDMA device; node-2 has "
    ):
        topology.join(read(connected), connected.fleet.nodes, Rules())


def test_plain_tcp_goes_over_the_network_that_the_nodes_share(connected: Connected, fleet: Fleet) -> None:
    fabric = over_tcp(connected)
    findings = preflight.run(connected, fabric, read(connected))

    assert findings == ()
    assert fabric.transport is Transport.TCP
    for name, rank in fabric.ranks.items():
        assert (rank.address, rank.interface, rank.options) == (fleet.nodes[name].address, "eth0", ())
        assert rank.env["GLOO_SOCKET_IFNAME"] == "eth0"
        assert rank.env["NCCL_IB_DISABLE"] == "1"


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ({"fabric": [{"interface": "enp1s0f9"}]}, "node-2: interface enp1s0f9 not found, expected one of: lo, "),
        pytest.param(
            {"fabric": [{"interface": "lo"}]},
            "node-2: lo 127.0.0.1 reaches no other node over 127.0.0.0/8",
            marks=pytest.mark.matrix,
        ),
        (
            {"env": {"GLOO_SOCKET_IFNAME": "enp1s0f9"}},
            "node-2: GLOO_SOCKET_IFNAME=enp1s0f9 names no interface that is up",
        ),
        ({"env": {"NCCL_SOCKET_IFNAME": "=lo"}}, "node-2: NCCL_SOCKET_IFNAME names no common network of "),
        ({"env": {"VLLM_HOST_IP": "10.0.0.9"}}, "node-2: VLLM_HOST_IP=10.0.0.9 names no interface that is up"),
    ],
)
def test_a_wrong_interface_of_one_rank_is_named(fleet: Fleet, named: dict[str, Any], problem: str) -> None:
    with connect(fleet) as connected, pytest.raises(PlanRefused) as refused:
        over_tcp(connected, **{"node-2": named})

    assert str(refused.value).startswith(problem)


@pytest.mark.usefixtures("cable")
def test_a_cable_between_different_ports_is_a_roce_link(connected: Connected) -> None:
    fabric = over_cable(connected)
    findings = preflight.run(connected, fabric, read(connected, TREE))

    assert findings == ()
    assert [str(link) for link in fabric.links] == [
        "192.168.100.0/24: node-1 rocep1s0f0 (enp1s0f0np0) 192.168.100.1 - "
        "node-2 rocep1s0f1 (enp1s0f1np1) 192.168.100.2"
    ]
    assert {name: rank.env["NCCL_IB_HCA"] for name, rank in fabric.ranks.items()} == {
        "node-1": "=rocep1s0f0:1",
        "node-2": "=rocep1s0f1:1",
    }


@pytest.mark.usefixtures("cable")
@pytest.mark.parametrize("small", ["node-1", pytest.param("node-2", marks=pytest.mark.matrix)])
def test_one_end_with_a_smaller_mtu_is_named(nodes: RealFleet, connected: Connected, small: str) -> None:
    nodes.node(small).exec("ip", "link", "set", PORTS[small], "mtu", "1500")

    with pytest.raises(PlanRefused) as refused:
        over_cable(connected)

    assert str(refused.value).startswith(f"{small}: MTU of the link 192.168.100.0/24: ")
    assert refused.value.next_step.startswith(f"sudo ip link set {PORTS[small]} mtu 9000")


@pytest.mark.matrix
@pytest.mark.usefixtures("cable")
def test_a_path_that_loses_large_packets_one_way_is_named(nodes: RealFleet, connected: Connected) -> None:
    """As a switch with a smaller MTU does; both ends say 9000."""
    long = ("-m", "length", "--length", "1501:65535", "-j", "DROP")
    drop = ("-A", "INPUT", "-i", "enp1s0f1np1", "-p", "icmp", "--icmp-type", "echo-request")
    nodes.node("node-2").exec("iptables", "-w", "-t", "mangle", *drop, *long)
    fabric = over_cable(connected)

    [finding] = preflight.run(connected, fabric, read(connected, TREE))

    assert (finding.code, finding.node) == ("MTU_PATH", "node-1")
    assert "192.168.100.0/24 loses packets of 9000 bytes from node-1 rocep1s0f0 (enp1s0f0np0) 192.168.100.1 to " in (
        finding.problem
    )


@pytest.mark.matrix
@pytest.mark.usefixtures("cable")
def test_a_link_that_answers_nothing_is_named(nodes: RealFleet, connected: Connected) -> None:
    nodes.node("node-2").exec("iptables", "-w", "-t", "mangle", "-A", "INPUT", "-i", "enp1s0f1np1", "-j", "DROP")
    fabric = over_cable(connected)

    findings = preflight.run(connected, fabric, read(connected, TREE))

    assert codes(findings) == [("NO_ANSWER", "node-1"), ("NO_ANSWER", "node-2")]
    assert all("the link 192.168.100.0/24 is broken: no reply from " in finding.problem for finding in findings)


@pytest.mark.usefixtures("cable")
def test_a_cable_that_is_pulled_is_said(nodes: RealFleet, connected: Connected) -> None:
    nodes.node("node-2").exec("ip", "link", "set", "enp1s0f1np1", "down")

    with pytest.raises(PlanRefused) as refused:
        over_cable(connected)

    ends = "node-1: rocep1s0f0 (enp1s0f0np0) has no carrier; node-2: rocep1s0f1 (enp1s0f1np1) has no carrier"
    assert str(refused.value) == f"no RoCE between node-1 and node-2: {ends}"


@pytest.fixture(scope="module")
def image(nodes: RealFleet, sparkops: Cli) -> Iterator[str]:
    """One image with Python, the same on both nodes, that no test of another file looks at."""
    built = sparkops("build", "stand-in", "--node", "node-1", "--json", timeout=600)
    assert built.code == 0, built.err
    tag, (one, two) = "sparkops-test/meet:1", nodes.nodes[:2]
    one.exec("docker", "tag", built.json["tag"], tag)
    give = (client(), "exec", one.container, "docker", "save", tag)
    pipe(give, (client(), "exec", "--interactive", two.container, "docker", "load", "--quiet"))
    for node in (one, two):
        image_layers.trust(node, tag, node.exec("docker", "image", "inspect", "--format", "{{.Id}}", tag).strip())
    yield tag
    for node in (one, two):
        node.exec("docker", "rmi", tag)


def try_ranks(connected: Connected, image: str) -> tuple[Finding, ...]:
    return preflight.run(connected, over_tcp(connected), read(connected), Ranks(image, "x", port=29511, ports=(29512,)))


def test_ranks_meet_inside_one_image_and_leave_nothing(nodes: RealFleet, connected: Connected, image: str) -> None:
    before = [node.exec("docker", "ps", "--all", "--quiet") for node in nodes.nodes]
    assert try_ranks(connected, image) == ()
    assert [node.exec("docker", "ps", "--all", "--quiet") for node in nodes.nodes] == before


def test_a_taken_port_is_named(nodes: RealFleet, connected: Connected, image: str) -> None:
    with listening(nodes.node("node-2"), 29512):
        findings = try_ranks(connected, image)

    assert codes(findings) == [("PORT_TAKEN", "node-2")]


def test_a_firewall_before_rank_0_is_named(nodes: RealFleet, connected: Connected, image: str) -> None:
    rule = ("INPUT", "-p", "tcp", "--dport", "29511", "-j", "DROP")
    nodes.node("node-1").exec("iptables", "-w", "-t", "mangle", "-A", *rule)
    try:
        [finding] = try_ranks(connected, image)
    finally:
        nodes.node("node-1").exec("iptables", "-w", "-t", "mangle", "-D", *rule)

    head, own = (connected.fleet.nodes[name].address for name in ("node-1", "node-2"))
    assert (finding.code, finding.node) == ("NO_MEETING", "node-2")
    assert finding.problem == f"rank 1 cannot reach {head}:29511, rank 0 on node-1, from {own}: timed out"


@pytest.mark.matrix
def test_another_image_under_the_same_tag_is_named(nodes: RealFleet, connected: Connected, image: str) -> None:
    two = nodes.node("node-2")
    two.exec("docker", "tag", image, f"{image}-kept")
    two.exec("sh", "-c", f"echo 'FROM {image}\nENV OTHER=1' | docker build --quiet --tag={image} -")
    other = two.exec("docker", "image", "inspect", "--format", "{{.Id}}", image).strip()
    try:
        untrusted = try_ranks(connected, image)
        image_layers.trust(two, image, other)
        findings = try_ranks(connected, image)
    finally:
        two.exec("docker", "tag", f"{image}-kept", image)
        two.exec("docker", "rmi", f"{image}-kept")

    assert codes(untrusted) == [("NO_IMAGE", "node-2")]
    assert codes(findings) == [("IMAGE", "node-2")]


def test_an_image_that_one_node_lacks_is_named(connected: Connected) -> None:
    ranks = Ranks("sparkops-test/none:1", "none", port=29511)
    findings = preflight.run(connected, over_tcp(connected), read(connected), ranks)

    assert codes(findings) == [("NO_IMAGE", "node-1"), ("NO_IMAGE", "node-2")]


@contextmanager
def listening(node: FleetNode, port: int) -> Iterator[None]:
    """A program that has a port of a node, until it has nothing more to read."""
    script = f"import socket, sys; s = socket.create_server(('0.0.0.0', {port})); print(flush=True); sys.stdin.read()"
    argv = (client(), "exec", "--interactive", node.container, "python3", "-c", script)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        yield
