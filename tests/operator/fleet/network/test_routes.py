"""At which addresses a node reaches another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkops.operator.fleet.network.routes import Host, addresses
from tests import sparks
from tests.examples import node
from tests.sparks import Spark

pytestmark = pytest.mark.local  # real shells read real files


def host(root: Path, name: str, spark: Spark, **config: Any) -> Host:
    config = {"address": f"10.0.0.{name}", **config}
    return Host(name, node(**config), sparks.facts(root / name, spark))


def test_the_fabric_goes_before_the_slow_network(tmp_path: Path) -> None:
    one, two = (host(tmp_path, str(number), sparks.spark(number)) for number in (1, 2))

    assert addresses(one, two) == ("192.168.100.11", "192.168.101.11", "10.0.0.2")


def test_a_port_that_is_down_or_in_another_network_is_no_way(tmp_path: Path) -> None:
    elsewhere = Spark(functions=sparks.port_1("192.168.7.10/24", "192.168.8.10/24"))
    down = Spark(functions=sparks.port_1("192.168.100.10/24", "192.168.101.10/24", up=False))
    two = host(tmp_path, "2", sparks.spark(2))

    assert addresses(host(tmp_path, "1", elsewhere), two) == ("10.0.0.2",)
    assert addresses(host(tmp_path, "3", down), two) == ("10.0.0.2",)


def test_a_node_that_tells_nothing_is_reached_at_its_address(tmp_path: Path) -> None:
    one = host(tmp_path, "1", sparks.spark(1))

    assert addresses(one, Host("2", node(address="10.0.0.2"))) == ("10.0.0.2",)


def test_a_local_node_can_be_called_over_the_fabric_only(tmp_path: Path) -> None:
    one = host(tmp_path, "1", sparks.spark(1))
    local = {"transport": "local", "address": "127.0.0.1"}

    assert addresses(one, Host("2", node(**local))) == ()
    assert addresses(one, host(tmp_path, "2", sparks.spark(2), **local)) == ("192.168.100.11", "192.168.101.11")
