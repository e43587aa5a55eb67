"""Journals that prune cannot read, and removals that are allowed no more."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import pytest

from sparkops.errors import NeedsOperator, NotReady
from sparkops.node.agents.commands import VOLUME
from sparkops.node.member import Member
from sparkops.operator.deploy.prune.plan import plan
from sparkops.operator.deploy.prune.run import Pruning, readable, states
from sparkops.serving.service_state import ServiceState
from sparkops.swap.journal import Journal
from tests.examples import node
from tests.node.recording import RecordingNode
from tests.operator.deploy.prune.test_plan import ALL, at, disk

KNOWN = ServiceState(Journal("chat", "n2", active=at()))
DAMAGED = NeedsOperator("both copies are damaged", next_step="Move it.")


@dataclass(frozen=True)
class WithoutContainers:
    """The Docker of a node without containers, which has these volumes."""

    volumes: Container[str] = ()

    def container(self, name: str) -> None:
        """Return no container."""

    def has_volume(self, name: str) -> bool:
        return name in self.volumes


def member(*volumes: str) -> Member:
    docker: Any = WithoutContainers(volumes)
    return Member("n1", node(), RecordingNode("n1"), docker)


def test_nothing_is_removed_beside_journals_whose_guard_was_removed() -> None:
    with pytest.raises(NotReady, match="n1: sparkops-guard not found: which releases its journals need is unknown"):
        states(member(VOLUME))


def test_a_node_that_never_had_a_guard_has_no_journals() -> None:
    assert states(member()) == {}


def test_the_journal_of_another_node_s_guard_names_what_stays() -> None:
    assert plan(disk(), readable({"n1": {}, "n2": {"chat": KNOWN}})) == ()


def test_nothing_is_removed_while_a_journal_cannot_be_read() -> None:
    with pytest.raises(NeedsOperator, match="n2: both copies are damaged") as refused:
        readable({"n1": {}, "n2": {"chat": KNOWN, "broken": DAMAGED}})

    assert refused.value.next_step == "Move it."


def test_only_what_still_may_go_is_removed() -> None:
    planned = Pruning(plan(disk(), []), 7)
    now = Pruning(plan(disk(volumes=()), []), 7)

    assert [str(removal) for removal in planned.still(now)] == ALL[:2]
    assert now.still(planned) == list(now.removals)
