"""Which ports the guard has closed, from what nft lists."""

from __future__ import annotations

from pathlib import Path

from sparkops.facts import firewall

LISTED = (Path(__file__).parent / "captured/nft-1.1.3-ruleset-inet.txt").read_text()


def test_the_closed_ports_are_those_of_the_table_of_sparkops() -> None:
    assert firewall.parse(LISTED) == {8001, 8002}


def test_without_that_table_no_port_is_closed() -> None:
    assert firewall.parse("") == firewall.parse(LISTED.split("table inet sparkops")[0]) == frozenset()
