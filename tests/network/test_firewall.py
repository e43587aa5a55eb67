"""The rules of nftables, as text. tests/captured/nft-1.1.3-ruleset-inet.txt is what nft made of such rules."""

from __future__ import annotations

import pytest

from sparkops.network import firewall
from sparkops.network.firewall import Firewall

RANGE = "32768\t60999\n"


def closed(callers: dict[int, tuple[str, ...]]) -> str:
    return firewall.rules(Firewall(callers), RANGE)


def test_the_rules_are_this_text() -> None:
    assert closed({8002: ("fd00::1", "10.0.0.1", "10.0.0.1"), 8001: ("172.17.0.1",)}) == (
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
    assert closed({}) == "table inet sparkops {}\ndelete table inet sparkops\n"


def test_a_port_of_loopback_engines_is_closed_to_every_other_node() -> None:
    assert "    tcp dport 8001 reject with tcp reset\n" in closed({8001: ()})
    assert "saddr" not in closed({8001: ()})


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
    wall = Firewall(engine, peers, meeting_ports=frozenset({8003}), open_ports=frozenset({22, 8000, 8001}))

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
