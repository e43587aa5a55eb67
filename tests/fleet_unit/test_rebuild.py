"""What a rebuild asks of the guards, and how it ends for each service."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace

import pytest

from sparkops.node.agents.commands import CONTAINER
from sparkops.operator.deploy.agents import rebuild
from sparkops.operator.deploy.agents.rebuild_plan import Rebuild, plan
from sparkops.operator.fleet.guards import membership
from sparkops.operator.fleet.guards.leader import connect_guard, leading
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.model import RankSpec
from tests.fleet_unit.conftest import Make
from tests.operator.deploy.states import serving

LOST = RankSpec("n9", "q-9-r0")


def test_every_guard_is_asked_for_its_copies_and_a_node_without_one_is_not(make: Make) -> None:
    world = make(3)
    del world.machines["n3"].containers[CONTAINER]
    journal = replace(serving().journal, leader="n9", peers=("n1", "n2"))
    for node in ("n1", "n2"):
        copies = {
            "leader": "n9",
            "journals": [],
            "copies": [wire.plain(Journal, journal)],
            "heard_ago_s": None,
        }
        (world.node(node).peer.directory / "copies").write_text(json.dumps({**copies, "problems": [], "term": 0}))

    with world.order() as order:
        answers = rebuild.read_copies(order.connected)

    assert {node: copies.copies for node, copies in answers.items()} == {"n1": (journal,), "n2": (journal,)}
    assert plan("n1", answers, frozenset({"n9"})).journals[0].leader == "n1"


def test_guards_keep_the_keys_of_earlier_leaders_only_where_these_may_return_without_the_new_one(make: Make) -> None:
    """n2 follows the leader, n3 does not answer."""
    world = make(3)
    planned = Rebuild("n1", (), (serving().journal,), following=frozenset({"n1", "n2"}))
    peer = world.node("n1").peer
    with world.order(without="n3") as order:
        with connect_guard(order.connected.member("n1")) as guard:
            guard.take(planned.journals, rebuild.unaware(order.connected, planned))
        membership.introduce(order.connected, "n1", former=rebuild.unaware(order.connected, planned))

    assert [request["former"] for request in peer.requests("take")] == [["n3"]]
    assert [request["former"] for request in world.node("n2").peer.requests("join")] == [["n3"]]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"trouble": "q does not answer"}, "q does not answer\nnext: sparkops logs chat\nsparkops deploy RECIPE"),
        ({"active": None}, ""),
        ({"active": None, "previous": serving().journal.active}, ""),
        (
            {"active": None, "stopped": (LOST,), "without": frozenset({"n9"})},
            "no release remains: q-9-r0 ran on lost nodes\nnext: sparkops deploy RECIPE",
        ),
    ],
)
def test_a_service_is_rebuilt_once_it_has_its_traffic(make: Make, changes: dict[str, object], why: str) -> None:
    world = make(1)
    world.node("n1").peer.write(replace(serving().journal, **changes))  # type: ignore[arg-type]
    with ExitStack() as opened:
        order = opened.enter_context(world.order())
        leader = opened.enter_context(leading(order.connected.members["n1"]))

        assert rebuild.failing(leader, "chat") == why
