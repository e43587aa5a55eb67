"""Who leads a service: the guard beside the gateway. Another one joins it, or is stopped first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import PlanRefused, SparkopsError
from sparkops.guard.daemon import link
from sparkops.guard.disk.state import Membership, State
from sparkops.guard.environment import NodeClock
from sparkops.guard.follow.follower import Follower
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.lead.operator_requests import OperatorRequests
from sparkops.names import Slot
from sparkops.node.local import LocalNode
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from sparkops.swap import wire
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Replica
from sparkops.swap.orders import order
from tests import examples

Begin = Callable[[], Leadership]
Ask = Callable[..., Any]


def deployed(*nodes: str) -> Deployment:
    recipe = examples.recipe(service="chat", serve={"tensor_parallel": len(nodes)} if len(nodes) > 1 else {})
    data = recipe.model_dump(mode="json", exclude_none=True)
    ranks = [
        rank_spec(
            EngineSpec(
                recipe=data,
                inputs=examples.INPUTS,
                image="sha256:1",
                slot=Slot.BLUE,
                index=index,
                address="127.0.0.1",
                node={},
                jobs=1,
            ),
            node,
        )
        for index, node in enumerate(nodes)
    ]
    return Deployment("q-1", Slot.BLUE, (Replica(tuple(ranks)),))


ALONE = Journal("chat", "n1", revision=3, active=deployed("n1"))
AT_REST = replace(ALONE, active=None, previous=ALONE.active, revision=9)
BEHIND = Journal("chat", "n2", ("n1",), revision=5, active=deployed("n2"))


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "v2", lambda: NodeClock(0.0, "b"))


@pytest.fixture
def begin(state: State) -> Iterator[Begin]:
    """The leading part of a guard's process on n1; Docker was not read yet."""
    over = threading.Event()

    def start() -> Leadership:
        node = LocalNode("n1")
        leadership = Leadership(
            state, node, Follower(state, node, lambda _: None), link("n1"), lambda _: None, over=over
        )
        leadership.start()
        return leadership

    yield start
    over.set()


def lead(leadership: Leadership, *copies: Journal) -> None:
    known = [wire.plain(Journal, copy) for copy in copies]
    leadership.verbs()["lead"]({"service": "chat", "copies": known})


def shown(leadership: Leadership) -> Journal:
    return wire.load_value(Journal, OperatorRequests(leadership).shown("chat")["journal"])


def test_what_another_guard_leads_is_stopped_there_first(begin: Begin, state: State) -> None:
    state.write_record("chat", Record(1, BEHIND))
    leadership = begin()

    with pytest.raises(PlanRefused, match="chat is already deployed, led by n2"):
        lead(leadership)
    lead_elsewhere = replace(BEHIND, active=None, revision=8)
    state.write_record("chat", Record(1, lead_elsewhere))
    lead(leadership)

    journal = shown(leadership)
    assert (journal.leader, journal.term, journal.peers) == ("n1", 2, ())


def test_copies_of_other_guards_count(begin: Begin) -> None:
    leadership = begin()

    with pytest.raises(PlanRefused, match="led by n2"):
        lead(leadership, BEHIND)
    lead(leadership, replace(BEHIND, active=None, term=4))

    assert shown(leadership).term == 5


def test_a_guard_whose_service_another_one_has_taken_shows_the_newer_journal(begin: Begin, state: State) -> None:
    state.write_journal(AT_REST)
    taken = replace(BEHIND, term=2)
    state.write_record("chat", Record(2, taken))

    assert shown(begin()) == taken


def test_orders_of_another_leader_do_not_reach_what_this_guard_has_deployed(begin: Begin, state: State) -> None:
    state.write_journal(ALONE)
    leadership = begin()
    same, later = (order(replace(BEHIND, term=term), "n1", "b") for term in (1, 2))

    assert leadership.followed("chat", same) is None
    assert leadership.followed("chat", later) == later
    assert leadership.followed("other", same) == same


JOIN = {"leader": "n3", "key": "00", "term": 0, "gateway": []}


def test_a_guard_behind_a_gateway_joins_another_leader(begin: Begin, state: State) -> None:
    state.write_membership(Membership("n2", b"k", {}))
    state.write_record("chat", Record(1, BEHIND))

    begin().verbs()["join"](JOIN)

    assert state.membership() == Membership("n3", b"\0", {}, {"n2": b"k"})


def test_an_intent_for_a_service_that_nobody_leads_here_is_refused(begin: Begin) -> None:
    intent = {"kind": "stop", "id": "i1", "revision": 0}

    with pytest.raises(SparkopsError, match="n1 does not lead this fleet"):
        begin().verbs()["intend"]({"service": "chat", "intent": intent})
