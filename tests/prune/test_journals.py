"""Nodes whose journals prune cannot read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sparkops.config.inventory import Build, Fleet
from sparkops.errors import NeedsOperator, NotReady, SparkopsError
from sparkops.guard_client.commands import VOLUME
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes import host
from sparkops.nodes.connected import Connected
from sparkops.nodes.member import Member
from sparkops.prune import run
from sparkops.prune.run import Pruning, prepare
from sparkops.swap.journal import Journal
from tests.examples import node
from tests.nodes.recording import RecordingNode
from tests.prune.test_plan import ALL, at, disk


@pytest.fixture(autouse=True)
def disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node has an old release."""
    monkeypatch.setattr(run, "read_disk", lambda member: disk(node=member.name, free=7))


def connected(*names: str, volumes: tuple[str, ...] = ()) -> Connected:
    """Nodes without containers, and with these volumes."""
    engine: Any = Mock(container=lambda _: None, has_volume=volumes.__contains__)
    members = {name: Member(name, node(), RecordingNode(name), engine) for name in names}
    fleet = Fleet(file=Path("i"), nodes=dict.fromkeys(names, node()), build=Build(), known_hosts=Path("k"))
    return Connected(fleet, members)


def test_nothing_is_removed_beside_journals_whose_guard_was_removed() -> None:
    with pytest.raises(NotReady, match="n1: sparkops-guard not found: which releases its journals need is unknown"):
        prepare(connected("n1", volumes=(VOLUME,)), ["n1"])


def test_a_node_that_never_had_a_guard_has_no_journals() -> None:
    pruning = prepare(connected("n1"), ["n1"])["n1"]

    assert [str(removal) for removal in pruning.removals] == ALL
    assert pruning.free == 7


def states(monkeypatch: pytest.MonkeyPatch, **of: ServiceState | SparkopsError) -> None:
    """The guard of n2 has the states of these services, that of n1 has none."""
    monkeypatch.setattr(run, "_states", lambda member: of if member.name == "n2" else {})


def test_the_journal_of_another_node_s_guard_names_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    states(monkeypatch, chat=ServiceState(Journal("chat", "n2", previous=at())))

    assert prepare(connected("n1", "n2"), ["n1"]) == {"n1": Pruning((), 7)}


def test_nothing_is_removed_while_a_journal_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ServiceState(Journal("chat", "n2", active=at()))
    states(monkeypatch, chat=known, broken=NeedsOperator("both copies are damaged", next_step="Move it."))

    with pytest.raises(NeedsOperator, match="n2: both copies are damaged") as refused:
        prepare(connected("n1", "n2"), ["n1"])

    assert refused.value.next_step == "Move it."


def test_a_guard_that_does_not_answer_keeps_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(member: Member) -> dict[str, ServiceState | SparkopsError]:
        raise NotReady(member.name, "no answer")

    monkeypatch.setattr(run, "_states", silent)

    with pytest.raises(NotReady, match="n1: no answer"):
        prepare(connected("n1"), ["n1"])


def test_only_what_still_may_go_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    both = connected("n1")
    planned = prepare(both, ["n1"])
    states(monkeypatch)
    monkeypatch.setattr(run, "read_disk", lambda member: replace(disk(node=member.name), volumes=(), free=7))
    monkeypatch.setattr(host, "parse", lambda _: Mock(disk_free_gib=None))

    removed = run.remove(both, lambda _: None, planned)["n1"]

    assert [str(removal) for removal in removed.removals] == ALL[:2]
