"""Who leads a service: the guard beside the gateway, or without one that of rank 0's node, and how that changes."""

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
from sparkops.guard.state import DirectMap, Membership, State
from sparkops.guard_client.engine_spec import EngineSpec, rank_spec
from sparkops.names import Slot
from sparkops.nodes.local import LocalNode
from sparkops.swap import wire
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Replica
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


def lead(leadership: Leadership, *copies: Journal, direct: bool = True, peers: tuple[str, ...] = ()) -> None:
    known = [wire.plain(Journal, copy) for copy in copies]
    leadership.verbs()["lead"]({"service": "chat", "copies": known, "peers": list(peers), "direct": direct})


def shown(leadership: Leadership) -> tuple[Journal, bool]:
    reply = OperatorRequests(leadership).shown("chat")
    return wire.load_value(Journal, reply["journal"]), reply["direct"]


def test_a_guard_leads_without_a_gateway_and_without_a_fleet(begin: Begin, state: State) -> None:
    leadership = begin()

    lead(leadership)
    lead(leadership)

    assert shown(leadership) == (Journal("chat", "n1"), True)
    assert (state.direct("chat"), state.membership()) == (DirectMap(), None)


def test_a_guard_that_restarts_leads_on_in_the_same_way(begin: Begin, state: State) -> None:
    state.write_journal(ALONE)
    state.write_direct("chat", DirectMap("q-1", {Slot.BLUE: "q-1"}))

    assert shown(begin()) == (ALONE, True)


def test_what_is_deployed_without_a_gateway_is_stopped_before_it_gets_one(begin: Begin, state: State) -> None:
    state.write_journal(ALONE)
    state.write_direct("chat", DirectMap())
    leadership = begin()

    with pytest.raises(PlanRefused, match="chat is already deployed, led by n1") as caught:
        lead(leadership, direct=False)

    assert (caught.value.next_step, caught.value.exit_code) == (NEXT, 5)
    assert shown(leadership) == (ALONE, True)


def test_a_stopped_service_gets_a_gateway_one_term_later(begin: Begin, state: State) -> None:
    state.write_journal(AT_REST)
    state.write_direct("chat", DirectMap())
    leadership = begin()

    lead(leadership, direct=False)

    journal, direct = shown(leadership)
    assert (journal.term, journal.revision, journal.previous, direct) == (2, 10, AT_REST.previous, False)
    assert (state.journal("chat"), state.direct("chat")) == (journal, None)


def test_what_another_guard_leads_is_stopped_there_first(begin: Begin, state: State) -> None:
    state.write_record("chat", Record(1, BEHIND))
    leadership = begin()

    with pytest.raises(PlanRefused, match="chat is already deployed, led by n2"):
        lead(leadership)
    lead_elsewhere = replace(BEHIND, active=None, revision=8)
    state.write_record("chat", Record(1, lead_elsewhere))
    lead(leadership)

    journal, direct = shown(leadership)
    assert (journal.leader, journal.term, journal.peers, direct) == ("n1", 2, (), True)


def test_copies_of_other_guards_count(begin: Begin) -> None:
    leadership = begin()

    with pytest.raises(PlanRefused, match="led by n2"):
        lead(leadership, BEHIND, peers=("n2",))
    lead(leadership, replace(BEHIND, active=None, term=4), peers=("n2",))

    assert (shown(leadership)[0].term, shown(leadership)[0].peers) == (5, ("n2",))


def test_a_guard_whose_service_another_one_has_taken_shows_the_newer_journal(begin: Begin, state: State) -> None:
    state.write_journal(AT_REST)
    state.write_direct("chat", DirectMap())
    taken = replace(BEHIND, term=2)
    state.write_record("chat", Record(2, taken))

    assert shown(begin()) == (taken, False)


def test_orders_of_another_leader_do_not_reach_what_this_guard_has_deployed(begin: Begin, state: State) -> None:
    state.write_journal(ALONE)
    state.write_direct("chat", DirectMap())
    leadership = begin()
    same, later = (order(replace(BEHIND, term=term), "n1", "b") for term in (1, 2))

    assert leadership.followed("chat", same) is None
    assert leadership.followed("chat", later) == later
    assert leadership.followed("other", same) == same


def test_a_service_of_one_node_is_told_to_no_other_guard(begin: Begin, state: State) -> None:
    state.write_membership(Membership("n1", b"k" * 32, {}))
    state.write_journal(ALONE)
    state.write_direct("chat", DirectMap())

    assert begin()._orders("n2", {}) == {}


JOIN = {"leader": "n3", "key": "00"}


def test_a_rank_of_a_pair_follows_no_other_leader(begin: Begin, state: State) -> None:
    followed = Journal("chat", "n2", ("n1",), revision=5, active=deployed("n2", "n1"))
    state.write_membership(Membership("n2", b"k", {}))
    state.write_record("chat", Record(1, followed))
    leadership = begin()

    for idle in (False, True):
        with pytest.raises(PlanRefused, match="n1 follows n2 for chat: a guard takes orders from one leader") as caught:
            leadership.verbs()["join"]({**JOIN, "idle": idle})
    assert caught.value.next_step.startswith("sparkops stop chat\n")
    with pytest.raises(PlanRefused):
        leadership.verbs()["key"]({"node": "n3", "idle": True})
    state.write_record("chat", Record(1, replace(followed, active=None)))
    leadership.verbs()["join"]({**JOIN, "idle": True})
    assert state.membership() == Membership("n3", b"\0", {}, {"n2": b"k"})


def test_the_head_of_a_pair_follows_nobody(begin: Begin, state: State) -> None:
    state.write_membership(Membership("n1", b"k", {}))
    state.write_journal(PAIR)
    state.write_direct("chat", DirectMap())

    with pytest.raises(PlanRefused, match="n1 leads chat: a guard takes orders from one leader"):
        begin().verbs()["join"](JOIN)


def test_a_guard_behind_a_gateway_joins_another_one_as_before_but_no_pair(begin: Begin, state: State) -> None:
    state.write_membership(Membership("n2", b"k", {}))
    state.write_record("chat", Record(1, BEHIND))
    leadership = begin()

    with pytest.raises(PlanRefused):
        leadership.verbs()["join"]({**JOIN, "idle": True})
    leadership.verbs()["join"](JOIN)

    assert state.membership() == Membership("n3", b"\0", {}, {"n2": b"k"})


def test_ranks_are_led_besides_the_guards_that_are_led_already(begin: Begin, state: State) -> None:
    leadership = begin()
    leadership.verbs()["key"]({"node": "n2", "idle": True})
    for name in ("n2", "n3"):
        leadership.verbs()["peers"]({"peers": {name: {"address": "192.0.2.1", "port": 1}}, "add": True})

    membership = state.membership()
    assert membership is not None
    assert sorted(membership.peers) == ["n2", "n3"]
    leadership.close()


def test_an_intent_for_a_service_that_nobody_leads_here_is_refused(begin: Begin) -> None:
    intent = {"kind": "stop", "id": "i1", "revision": 0}

    with pytest.raises(SparkopsError, match="n1 does not lead this fleet"):
        begin().verbs()["intend"]({"service": "chat", "intent": intent})


def test_a_deploy_behind_the_gateway_is_refused_while_the_service_has_none(begin: Begin, state: State) -> None:
    state.write_journal(AT_REST)
    state.write_direct("chat", DirectMap())
    target = wire.plain(Deployment, deployed("n1", direct=False))
    intent = {"kind": "deploy", "id": "i1", "revision": 9, "target": target, "mode": Mode.FIRST.value}

    with pytest.raises(PlanRefused, match="chat is already deployed, led by n1"):
        begin().verbs()["intend"]({"service": "chat", "intent": intent})
