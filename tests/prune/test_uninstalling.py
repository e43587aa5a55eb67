"""Nodes that were given up: only lost ones, and the leader among them is named."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from unittest.mock import Mock

import pytest

from sparkops.config import inventory
from sparkops.errors import PlanRefused, SparkopsError, UsageError
from sparkops.nodes.connected import Connected
from sparkops.nodes.member import Member
from sparkops.prune.uninstall import Extent
from sparkops.prune.uninstalling import Target, prepare, require_lost

INVENTORY = "nodes:\n  n1: {address: 10.0.0.1}\n  n2: {address: 10.0.0.2}\ngateway: {node: n2}\n"


def member(name: str, *, guarded: bool) -> Member:
    facts = {"State": {"Running": True}} if guarded else None
    return Member(name, Mock(), Mock(), Mock(container=Mock(return_value=facts)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    return tmp_path / "inventory.yaml"


def connected(file: Path, guarded: Collection[str], lost: Collection[str] = ()) -> Connected:
    names = {"n1", "n2"} - {*lost}
    errors = {name: SparkopsError(f"{name}: no route", next_step="Start it.") for name in lost}
    return Connected(
        inventory.load(file), {name: member(name, guarded=name in guarded) for name in names}, dict(errors)
    )


def test_a_node_whose_guard_answers_is_not_lost(file: Path) -> None:
    with pytest.raises(UsageError, match="--without n2: its guard answers") as refused:
        prepare(Target(connected(file, {"n1", "n2"}), "n1", Extent(), frozenset({"n2"})))

    assert refused.value.next_step == "Drop --without for this node."


def test_a_node_without_a_guard_and_an_unreachable_one_may_be_given_up(file: Path) -> None:
    require_lost(connected(file, {"n1"}), {"n2"})
    lost = connected(file, {"n1"}, {"n2"})
    require_lost(lost, {"n2"})

    assert Target(lost, "n1", Extent(), frozenset({"n2"})).leader is None


def test_the_error_of_a_lost_leader_names_the_option(file: Path) -> None:
    with pytest.raises(PlanRefused, match="n2: no route; its guard leads n1") as refused:
        prepare(Target(connected(file, {"n1"}, {"n2"}), "n1", Extent()))

    assert refused.value.next_step == "Start it.\nIf n2 is lost: sparkops uninstall n1 --without n2"
