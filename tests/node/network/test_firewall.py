"""The rules of nftables, as text, and open ports. tests/captured/nft-1.1.3-ruleset-inet.txt lists such rules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from typing import Any

import pytest

from sparkops.node.docker.facts import Container
from sparkops.node.network import firewall
from sparkops.node.network.finding import Severity
from sparkops.node.network.firewall import Firewall
from tests.examples import container, rank
from tests.fleet import engine as docker
from tests.places import CAPTURED

RANGE = "32768\t60999\n"


def rules_for(callers: dict[int, tuple[str, ...]]) -> str:
    return firewall.rules(Firewall(callers), RANGE)


def test_the_rules_are_this_text() -> None:
    assert rules_for({8002: ("fd00::1", "10.0.0.1", "10.0.0.1"), 8001: ("172.17.0.1",)}) == (
        "table inet sparkops {}\n"
        "delete table inet sparkops\n"
        "table inet sparkops {\n"
        "  chain input {\n"
        "    type filter hook input priority filter - 10; policy accept;\n"
        '    iifname "lo" accept\n'
        "    tcp dport 8001 ip saddr { 172.17.0.1 } accept\n"
        "    tcp dport 8001 reject with tcp reset\n"
        "    tcp dport 8002 ip saddr { 10.0.0.1 } accept\n"
        "    tcp dport 8002 ip6 saddr { fd00::1 } accept\n"
        "    tcp dport 8002 reject with tcp reset\n"
        "  }\n"
        "}\n"
    )


def test_without_ports_the_table_goes() -> None:
    assert rules_for({}) == "table inet sparkops {}\ndelete table inet sparkops\n"


def test_a_port_of_loopback_engines_is_closed_to_every_other_node() -> None:
    assert "    tcp dport 8001 reject with tcp reset\n" in rules_for({8001: ()})
    assert "saddr" not in rules_for({8001: ()})


@pytest.mark.parametrize("caller", ["", "n1", "10.0.0.1 } accept; drop", "10.0.0.0/8"])
def test_only_addresses_reach_the_rules(caller: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
        firewall.apply(Firewall({8001: (caller,)}), RANGE)


def test_the_rules_go_by_stdin() -> None:
    command = firewall.apply(Firewall(), RANGE)

    assert (str(command), command.changes) == ("nft -f -", True)
    assert command.stdin == firewall.CLEARED.encode()


def test_ports_between_ranks_are_for_ranks_after_what_is_open_to_all() -> None:
    peers, engine = frozenset({"10.0.0.2", "10.0.0.1"}), {8001: ("192.168.1.9",)}
    wall = Firewall(engine, peers, rendezvous_ports=frozenset({8003}), open_ports=frozenset({22, 8000, 8001}))

    assert firewall.rules(wall, RANGE).splitlines()[6:-2] == [
        "    tcp dport 8001 ip saddr { 192.168.1.9 } accept",
        "    tcp dport 8001 reject with tcp reset",
        "    ip saddr { 10.0.0.1, 10.0.0.2 } accept",
        "    tcp dport { 22, 8000, 8001 } accept",
        "    tcp dport { 8003, 32768-60999 } tcp flags & (fin | syn | rst | ack) == syn drop",
    ]


def test_a_range_that_cannot_be_read_is_no_open_firewall() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        firewall.rules(Firewall(peers=frozenset({"10.0.0.1"})), "")


GATEWAY = ("10.0.0.1",)


def engine(**changes: Any) -> Container:
    return container(rank(), **changes)


def test_only_ports_with_a_label_are_closed() -> None:
    assert firewall.restricted([engine()]) == {}
    assert firewall.restricted([engine(callers=GATEWAY)]) == {8001: GATEWAY}
    assert firewall.restricted([engine(callers=())]) == {8001: ()}


def test_a_rank_that_answers_no_requests_has_no_port() -> None:
    assert firewall.restricted([engine(callers=GATEWAY, rank=1)]) == {}


def test_a_port_belongs_to_the_container_that_runs_else_to_the_newest() -> None:
    stopped = {"state": "exited", "restart_policy": "no"}

    assert firewall.restricted([engine(callers=GATEWAY, **stopped), engine()]) == {}
    assert firewall.restricted([engine(**stopped), engine(callers=GATEWAY)]) == {8001: GATEWAY}
    newest_first = [engine(callers=GATEWAY, state="created"), engine(**stopped)]
    assert firewall.restricted(newest_first) == {8001: GATEWAY}


def test_the_firewall_follows_every_rank_that_is_there_running_or_not() -> None:
    pair = {"peers": ("10.0.0.1", "10.0.0.2"), "rendezvous_port": 8003, "ssh_port": 22, "state": "exited"}

    wall = firewall.of_containers([engine(**pair), engine(slot="green", port=9002)])

    assert wall.peers == {"10.0.0.1", "10.0.0.2"}
    assert wall.rendezvous_ports == {8003}
    assert wall.open_ports == {22, 8000, 8001, 9000, 9002}
    assert firewall.of_containers([engine()]).peers == frozenset()


PAIR: dict[str, Any] = {"peers": ("10.0.0.1", "10.0.0.2"), "ssh_port": 22, "rendezvous_port": 8003}


@pytest.mark.parametrize(
    ("pair", "other"),
    [({}, {"port": 8004}), ({"state": "created"}, {"port": 8004}), ({}, {"port": 8003, "state": "exited"})],
    ids=["the gateway's port of another service", "before the start", "an engine that has ended"],
)
def test_the_port_where_ranks_connect_is_open_for_no_other_service(pair: dict[str, Any], other: dict[str, Any]) -> None:
    wall = firewall.of_containers([engine(**PAIR, **pair), engine(name="other", **other)])

    assert 8003 in wall.rendezvous_ports - wall.open_ports


def test_a_service_keeps_its_port_where_no_rank_listens_on_it() -> None:
    stopped, elsewhere = engine(**PAIR, state="exited"), engine(**PAIR, rank=1)

    assert 8003 in firewall.of_containers([stopped, engine(name="other", port=8003)]).open_ports
    assert 8003 in firewall.of_containers([elsewhere, engine(name="other", port=8004)]).open_ports


@pytest.mark.parametrize(
    ("changes", "filtered", "code"),
    [
        ({}, None, "ENGINE_OPEN"),
        ({"callers": ()}, None, "ENGINE_OPEN"),
        ({"callers": GATEWAY}, None, "FILTER_UNKNOWN"),
        ({"callers": GATEWAY}, (), "FILTER_MISSING"),
        ({"callers": GATEWAY}, (8002,), "FILTER_MISSING"),
    ],
)
def test_an_engine_that_others_may_reach_is_a_warning(
    changes: dict[str, Any], filtered: Collection[int] | None, code: str
) -> None:
    (finding,) = firewall.engine_findings("n1", [engine(**changes)], {8001}, filtered)

    assert (finding.code, finding.node, finding.severity) == (code, "n1", Severity.WARNING)
    assert "8001" in finding.problem


@pytest.mark.parametrize(
    ("changes", "open_ports"),
    [({"callers": GATEWAY}, {8001}), ({}, {22}), ({"state": "exited"}, {8001}), ({"rank": 1}, {8001})],
    ids=["closed by a rule", "on loopback", "stopped", "no port of its own"],
)
def test_what_only_the_gateway_reaches_is_no_finding(changes: dict[str, Any], open_ports: set[int]) -> None:
    assert [*firewall.engine_findings("n1", [engine(**changes)], open_ports, {8001})] == []


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(("filtered", "code"), [(None, "FILTER_UNKNOWN"), ({8001}, "FILTER_MISSING")])
def test_ranks_that_others_may_reach_are_a_warning(rank: int, filtered: set[int] | None, code: str) -> None:
    (finding,) = firewall.rank_findings("n1", [engine(**PAIR, rank=rank)], filtered)

    assert (finding.code, finding.node, finding.severity) == (code, "n1", Severity.WARNING)
    assert "ports between ranks of q-" in finding.problem


@pytest.mark.parametrize(
    ("changes", "filtered"),
    [(PAIR, {8003}), ({**PAIR, "state": "exited"}, set()), ({}, None)],
    ids=["closed by a rule", "stopped", "on one node"],
)
def test_ranks_that_no_other_reaches_are_no_finding(changes: dict[str, Any], filtered: set[int] | None) -> None:
    assert [*firewall.rank_findings("n1", [engine(**changes)], filtered)] == []


def test_a_gateway_that_has_moved_may_connect_beside_the_one_that_an_engine_was_created_for() -> None:
    guarded, alone = engine(callers=GATEWAY, port=9101), engine(name="alone", callers=(), port=9103)

    wall = firewall.of_containers([guarded, alone], ("10.0.0.2",))

    assert wall.callers == {9101: ("10.0.0.1", "10.0.0.2"), 9103: ()}


LISTED, OF_RANKS = ((CAPTURED / f"nft-1.1.3-ruleset-inet{of}.txt").read_text() for of in ("", "-ranks"))


def test_the_closed_ports_are_those_of_the_table_of_sparkops() -> None:
    assert firewall.closed_ports(LISTED) == {8001, 8002}


def test_without_that_table_no_port_is_closed() -> None:
    assert firewall.closed_ports("") == firewall.closed_ports(LISTED.split("table inet sparkops")[0]) == frozenset()


def test_the_rendezvous_port_of_ranks_is_closed_and_a_port_that_is_open_to_all_is_not() -> None:
    assert firewall.closed_ports(OF_RANKS) == {8001, 8002, 8502, 8503}


def test_nft_1_0_6_writes_the_rule_of_ranks_in_another_way() -> None:
    older = OF_RANKS.replace("tcp flags & (fin | syn | rst | ack) == syn", "tcp flags syn / fin,syn,rst,ack")

    assert older != OF_RANKS
    assert firewall.closed_ports(older) == firewall.closed_ports(OF_RANKS)


def test_only_engines_accept_connections_on_their_ports() -> None:
    """Whoever binds the port of an engine before it does must not get the requests of clients."""
    wall = firewall.of_containers([engine(state="created"), engine(**PAIR, port=9001, state="exited")])

    assert firewall.rules(Firewall(engine_ports=wall.engine_ports), RANGE) == (
        "table inet sparkops {}\n"
        "delete table inet sparkops\n"
        "table inet sparkops {\n"
        "  chain output {\n"
        "    type filter hook output priority filter - 10; policy accept;\n"
        "    tcp sport { 8001, 8003, 9001 } tcp flags & syn == syn meta skuid { 0, 10841, 10842 } accept\n"
        "    tcp sport { 8001, 8003, 9001 } tcp flags & syn == syn drop\n"
        "  }\n"
        "}\n"
    )
    assert firewall.of_containers([engine(rank=1)]).engine_ports == frozenset()


SERVE = """import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
with socket.create_server(("0.0.0.0", 8001)) as server:
    print("listens", flush=True)
    connection, _ = server.accept()
    connection.sendall(b"answer")"""
ALONE = f"""import socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["nft", "-f", "-"], input=sys.argv[2], text=True, check=True)
with open("/proc/sys/net/ipv4/tcp_syncookies", "w") as setting:
    setting.write(sys.argv[3])
def get():
    with socket.create_connection(("127.0.0.1", 8001), timeout=3) as connection:
        return connection.recv(6).decode()
server = subprocess.Popen([sys.executable, "-c", {SERVE!r}, sys.argv[1]], stdout=subprocess.PIPE, text=True)
try:
    server.stdout.readline()
    print(get())
except TimeoutError:
    print("no connection")
finally:
    server.kill()
    server.wait()
try:
    get()
except ConnectionRefusedError:
    print("refused")"""
"""Run in a network of its own: a closed port there refuses at once, whatever the rules are."""


@pytest.mark.local
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")
@pytest.mark.parametrize(
    ("user", "gets"),
    [(1000, "no connection"), (65534, "no connection"), (10841, "answer"), (10842, "answer"), (0, "answer")],
)
def test_the_kernel_gives_no_connection_to_a_user_who_binds_the_port_of_an_engine(user: int, gets: str) -> None:
    assert listens_as(user) == [gets, "refused"]


def listens_as(user: int, cookies: int = 1) -> list[str]:
    """Return what a client gets of a program of this user on the port of an engine, and once it has ended."""
    wall = firewall.rules(firewall.of_containers([engine(state="created")]), RANGE)
    argv = ("unshare", "--net", sys.executable, "-c", ALONE, str(user), wall, str(cookies))

    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()


@pytest.mark.local
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")
def test_an_answer_with_a_syn_cookie_names_no_user_and_gives_no_connection() -> None:
    """The kernel sends one where the queue of a listener is full: each user can fill that of their own listener."""
    assert listens_as(1000, cookies=2) == ["no connection", "refused"]


SYN_ACK_ONLY = """table inet sparkops {
  chain output {
    type filter hook output priority filter - 10; policy accept;
    tcp sport 8001 tcp flags & (syn | ack) == (syn | ack) meta skuid != { 0, 10841, 10842 } drop
  }
}
"""
"""Rules that pass the SYN of the attack: it must succeed with them here, or the other case shows nothing."""


@pytest.mark.local
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("nft"), reason="needs root and nft")
@pytest.mark.parametrize("guarded", [False, True], ids=["rules for SYN-ACK only", "the rules of sparkops"])
@pytest.mark.parametrize(
    ("program", "taken", "refused"),
    [
        (("tests.operator.fleet.network.simultaneous", "case"), "tried taken", "tried TimeoutError"),
        (("tests.gateway.taken_port",), "tried 200 taken", "tried 503 refused"),
    ],
    ids=["a client", "the gateway"],
)
def test_the_kernel_gives_no_connection_to_a_user_who_connects_from_the_port_of_an_engine(
    program: tuple[str, ...], taken: str, refused: str, guarded: bool
) -> None:
    docker.require({"haproxy": "haproxy"})
    wall = firewall.rules(firewall.of_containers([engine(state="created")]), RANGE) if guarded else SYN_ACK_ONLY
    argv = ("unshare", "--net", sys.executable, "-m", *program)

    ran = subprocess.run(argv, input=wall, check=True, capture_output=True, text=True, timeout=120)

    assert ran.stdout.splitlines() == [refused if guarded else taken]
