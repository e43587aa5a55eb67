"""Who leads a service: the guard beside the gateway. What an earlier version left without one can only be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import PlanRefused, SparkopsError
from sparkops.guard.daemon import link
from sparkops.guard.environment import NodeClock
from sparkops.guard.follower import Follower
from sparkops.guard.leadership import Leadership
from sparkops.guard.operator_requests import OperatorRequests
from sparkops.guard.state import Membership, State
from sparkops.guard_client.engine_spec import EngineSpec, rank_spec
from sparkops.names import Slot
from sparkops.nodes.local import LocalNode
from sparkops.swap import wire
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Replica
from sparkops.swap.orders import order
from tests import examples

Begin = Callable[[], Leadership]
Ask = Callable[..., Any]
NEXT = "sparkops stop chat, then deploy it again"


def deployed(*nodes: str, direct: bool = True) -> Deployment:
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
                direct=direct,
            ),
            node,
        )
        for index, node in enumerate(nodes)
    ]
    return Deployment("q-1", Slot.BLUE, (Replica(tuple(ranks)),))


ALONE = Journal("chat", "n1", revision=3, active=deployed("n1"))
AT_REST = replace(ALONE, active=None, previous=ALONE.active, revision=9)
PAIR = Journal("chat", "n1", ("n2",), revision=3, active=deployed("n1", "n2"))
BEHIND = Journal("chat", "n2", ("n1",), revision=5, active=deployed("n2", direct=False))


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


def left(state: State, journal: Journal) -> None:
    """The files of a service that an earlier version leads without a gateway."""
    state.write_journal(journal)
    (state.directory / "services/chat/direct").write_text('{"traffic": "q-1", "slots": {"blue": "q-1"}, "schema": 2}')


def lead(leadership: Leadership, *copies: Journal) -> None:
    known = [wire.plain(Journal, copy) for copy in copies]
    leadership.verbs()["lead"]({"service": "chat", "copies": known})


def shown(leadership: Leadership) -> tuple[Journal, bool]:
    reply = OperatorRequests(leadership).shown("chat")
    return wire.load_value(Journal, reply["journal"]), reply["direct"]


def test_what_is_deployed_without_a_gateway_is_stopped_before_it_gets_one(begin: Begin, state: State) -> None:
    left(state, ALONE)
    leadership = begin()

    with pytest.raises(PlanRefused, match="chat is already deployed, led by n1") as caught:
        lead(leadership)

    assert (caught.value.next_step, caught.value.exit_code) == (NEXT, 5)
    assert shown(leadership) == (ALONE, True)


def test_a_stopped_service_gets_a_gateway_one_term_later(begin: Begin, state: State) -> None:
    left(state, AT_REST)
    leadership = begin()

    lead(leadership)

    journal, direct = shown(leadership)
    assert (journal.term, journal.revision, journal.previous, direct) == (2, 10, AT_REST.previous, False)
    assert (state.journal("chat"), state.without_gateway("chat")) == (journal, False)


def test_what_another_guard_leads_is_stopped_there_first(begin: Begin, state: State) -> None:
    state.write_record("chat", Record(1, BEHIND))
    leadership = begin()

    with pytest.raises(PlanRefused, match="chat is already deployed, led by n2"):
        lead(leadership)
    lead_elsewhere = replace(BEHIND, active=None, revision=8)
    state.write_record("chat", Record(1, lead_elsewhere))
    lead(leadership)

    journal, direct = shown(leadership)
    assert (journal.leader, journal.term, journal.peers, direct) == ("n1", 2, (), False)


def test_copies_of_other_guards_count(begin: Begin) -> None:
    leadership = begin()

    with pytest.raises(PlanRefused, match="led by n2"):
        lead(leadership, BEHIND)
    lead(leadership, replace(BEHIND, active=None, term=4))

    assert shown(leadership)[0].term == 5


def test_a_guard_whose_service_another_one_has_taken_shows_the_newer_journal(begin: Begin, state: State) -> None:
    left(state, AT_REST)
    taken = replace(BEHIND, term=2)
    state.write_record("chat", Record(2, taken))

    assert shown(begin()) == (taken, False)


def test_orders_of_another_leader_do_not_reach_what_this_guard_has_deployed(begin: Begin, state: State) -> None:
    left(state, ALONE)
    leadership = begin()
    same, later = (order(replace(BEHIND, term=term), "n1", "b") for term in (1, 2))

    assert leadership.followed("chat", same) is None
    assert leadership.followed("chat", later) == later
    assert leadership.followed("other", same) == same


JOIN = {"leader": "n3", "key": "00"}


def test_a_rank_of_a_pair_follows_no_other_leader(begin: Begin, state: State) -> None:
    followed = Journal("chat", "n2", ("n1",), revision=5, active=deployed("n2", "n1"))
    state.write_membership(Membership("n2", b"k", {}))
    state.write_record("chat", Record(1, followed))
    leadership = begin()

    with pytest.raises(PlanRefused, match="n1 follows n2 for chat: a guard takes orders from one leader") as caught:
        leadership.verbs()["join"](JOIN)
    assert caught.value.next_step == "sparkops stop chat"
    state.write_record("chat", Record(1, replace(followed, active=None)))
    leadership.verbs()["join"](JOIN)
    assert state.membership() == Membership("n3", b"\0", {}, {"n2": b"k"})


def test_the_head_of_a_pair_follows_nobody(begin: Begin, state: State) -> None:
    state.write_membership(Membership("n1", b"k", {}))
    left(state, PAIR)

    with pytest.raises(PlanRefused, match="n1 leads chat: a guard takes orders from one leader"):
        begin().verbs()["join"](JOIN)


def test_a_guard_behind_a_gateway_joins_another_leader(begin: Begin, state: State) -> None:
    state.write_membership(Membership("n2", b"k", {}))
    state.write_record("chat", Record(1, BEHIND))

    begin().verbs()["join"](JOIN)

    assert state.membership() == Membership("n3", b"\0", {}, {"n2": b"k"})


def test_an_intent_for_a_service_that_nobody_leads_here_is_refused(begin: Begin) -> None:
    intent = {"kind": "stop", "id": "i1", "revision": 0}

    with pytest.raises(SparkopsError, match="n1 does not lead this fleet"):
        begin().verbs()["intend"]({"service": "chat", "intent": intent})


@pytest.mark.parametrize("kind", ["promote", "cancel", "hold"])
def test_what_an_earlier_version_left_takes_no_intent_but_a_stop(begin: Begin, state: State, kind: str) -> None:
    left(state, ALONE)
    intent = {"kind": kind, "id": "i1", "revision": 3, **({"reason": "why"} if kind == "hold" else {})}

    with pytest.raises(PlanRefused, match="chat serves without a gateway, by an earlier version of sparkops") as caught:
        begin().verbs()["intend"]({"service": "chat", "intent": intent})

    assert caught.value.next_step == "sparkops stop chat, then deploy it behind the gateway"


def test_what_an_earlier_version_left_serves_until_it_is_stopped(begin: Begin, state: State) -> None:
    left(state, ALONE)
    leadership = begin()
    led = leadership.leads["chat"]

    for _ in range(3):
        led.turn()
    assert shown(leadership) == (ALONE, True)

    intent = {"kind": "stop", "id": "i1", "revision": 3}
    reply: Any = leadership.verbs()["intend"]({"service": "chat", "intent": intent})
    assert reply["result"] == "accepted"
    for _ in range(5):
        led.turn()
    journal, _ = shown(leadership)
    assert (journal.active, journal.stopping, [rank.node for rank in journal.halting]) == (None, False, ["n1"])
