"""Which ports the guard has closed, from what nft lists."""

from __future__ import annotations

from pathlib import Path

from sparkops.network import closed_ports

CAPTURED = Path(__file__).parent.parent / "captured"
LISTED, OF_RANKS = ((CAPTURED / f"nft-1.1.3-ruleset-inet{of}.txt").read_text() for of in ("", "-ranks"))


def test_the_closed_ports_are_those_of_the_table_of_sparkops() -> None:
    assert closed_ports.parse(LISTED) == {8001, 8002}


def test_without_that_table_no_port_is_closed() -> None:
    assert closed_ports.parse("") == closed_ports.parse(LISTED.split("table inet sparkops")[0]) == frozenset()


def test_the_meeting_port_of_ranks_is_closed_and_a_port_that_is_open_to_all_is_not() -> None:
    assert closed_ports.parse(OF_RANKS) == {8001, 8002, 8502, 8503}


def test_nft_1_0_6_writes_the_rule_of_ranks_in_another_way() -> None:
    older = OF_RANKS.replace("tcp flags & (fin | syn | rst | ack) == syn", "tcp flags syn / fin,syn,rst,ack")

    assert older != OF_RANKS
    assert closed_ports.parse(older) == closed_ports.parse(OF_RANKS)
