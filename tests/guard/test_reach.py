"""The leader's way to the other guards: what is recent counts, and what is lost is told once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from sparkops.errors import ConnectionLost
from sparkops.guard.lead.peers import FRESH_S, Reach, ServiceOrders
from sparkops.swap.fleet_state import Report
from sparkops.swap.journal import Journal
from sparkops.swap.orders import order

pytestmark = pytest.mark.unit
JOURNAL = Journal("chat", "n1", revision=3)


@dataclass
class Wire:
    """The way to one guard that answers, or does not."""

    node: str = "n2"
    cut: bool = False
    given: list[ServiceOrders] = field(default_factory=list)
    progress: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def exchange(self, orders: ServiceOrders) -> Mapping[str, Report]:
        if self.cut:
            raise ConnectionLost(self.node, "no route to host")
        self.given.append(orders)
        self.progress = {"chat": {"a-r0": "loading"}}
        return {"chat": Report("n2", "boot", 1, 3)}


def reach(wire: Wire, lines: list[str]) -> Reach:
    def orders(node: str, boots: Mapping[str, str]) -> ServiceOrders:
        return {"chat": order(JOURNAL, node, boots["chat"]) if "chat" in boots else None}

    return Reach((wire,), orders, lambda: False, lines.append)


def test_a_guard_is_asked_for_its_boot_before_it_gets_an_order() -> None:
    wire = Wire()
    way = reach(wire, [])
    way.exchange(wire)
    way.exchange(wire)

    first, second = wire.given
    assert first == {"chat": None}
    assert second["chat"] == order(JOURNAL, "n2", "boot")


def test_a_recent_report_counts_and_an_old_one_does_not() -> None:
    wire = Wire()
    way = reach(wire, [])
    way.exchange(wire)

    assert set(way.reports("chat")) == {"n2"}
    assert way.progress("chat") == {"n2": {"a-r0": "loading"}}
    way.last["n2"].at_s -= FRESH_S + 1
    assert way.reports("chat") == {}
    assert way.contacts("chat", 1) == {"n2"}


def test_a_lost_guard_is_told_once_and_so_is_its_return() -> None:
    wire, lines = Wire(cut=True), list[str]()
    way = reach(wire, lines)
    way.exchange(wire)
    way.exchange(wire)
    assert "no route to host" in way.lost["n2"]
    wire.cut = False
    way.exchange(wire)
    way.exchange(wire)

    assert [line.split(": ")[1] for line in lines] == ["its guard cannot be reached", "its guard is reachable again"]
    assert way.lost == {}
