"""What a move of gateway and leader does next, from what guards and nodes report, and what it is refused for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.errors import Busy, PlanRefused
from sparkops.operator.deploy.agents.move_plan import Move, plan
from sparkops.operator.deploy.agents.rebuild_plan import GuardCopies
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode
from tests.operator.deploy.states import deployed, target

ACTIVE = deployed(node="n2")
JOURNAL = Journal("chat", "n1", ("n2",), term=2, revision=9, active=ACTIVE)
LEADER = GuardCopies("n1", journals=(JOURNAL,))
FOLLOWER = GuardCopies("n1", copies=(JOURNAL,), heard_ago_s=0.5)


def planned(*gateways: str, node: str = "n2", **copies: GuardCopies) -> Move:
    return plan(node, {"n1": LEADER, "n2": FOLLOWER, **copies}, gateways or ("n1",))


def test_a_plan_prints_what_happens_in_its_order() -> None:
    move = planned()

    assert (move.leader, move.led, move.closing, move.ended) == ("n1", False, ("n1",), False)
    (journal,) = move.rebuild.journals
    assert (journal.leader, journal.term, journal.revision, journal.peers) == ("n2", 3, 10, ("n1",))
    assert journal.active == ACTIVE
    drain_s = int(ACTIVE.limits.drain_s)
    assert str(move).splitlines() == [
        "gateway and leader on n2",
        f"  chat: {ACTIVE.release} serves; journal term 3, revision 10",
        "  n2: start the gateway, with the keys and the certificate of the inventory",
        "  n1: its guard stops leading",
        "  n2: its guard takes the lead; all others get a new key and follow it",
        f"  n1: remove the gateway 0 s after that on n2 answers; open requests have {drain_s} s",
    ]


def test_what_an_interrupted_move_has_done_is_not_done_again() -> None:
    """In the order of the steps: the leader has resigned, the node has taken the lead, the others follow it."""
    resigned = replace(LEADER, leader="n2")
    (journal,) = planned().rebuild.journals
    taken = GuardCopies("n2", journals=(journal,), copies=(JOURNAL,), term=3)
    following = GuardCopies("n2", journals=(JOURNAL,), copies=(journal,), term=3, heard_ago_s=0.5)

    after_resignation = planned("n1", "n2", n1=resigned)
    after_take = planned("n1", "n2", n1=resigned, n2=taken)
    after_join = planned("n1", "n2", n1=following, n2=taken)
    after_end = planned("n2", n1=following, n2=taken)

    assert (after_resignation.leader, after_resignation.rebuild.journals) == ("", (journal,))
    assert (after_take.leader, after_take.led, after_take.rebuild.kept) == ("", False, (journal,))
    assert (after_join.led, after_join.closing, after_join.ended) == (True, ("n1",), False)
    assert (after_end.ended, str(after_end)) == (True, "gateway and leader are on n2")


def test_a_move_that_began_is_undone_by_one_to_the_old_node() -> None:
    (journal,) = planned().rebuild.journals

    back = planned("n1", "n2", node="n1", n1=replace(LEADER, leader="n2"))
    later = planned("n1", "n2", node="n1", n1=replace(LEADER, leader="n2"), n2=GuardCopies("n2", journals=(journal,)))

    assert (back.leader, back.rebuild.kept, back.closing, back.led) == ("", (JOURNAL,), ("n2",), False)
    assert (later.leader, [item.term for item in later.rebuild.journals]) == ("n2", [4])


def test_a_leader_that_a_rebuild_has_replaced_hands_nothing_over() -> None:
    """It returns with its gateway, and a move to the present leader's node removes that."""
    newer = replace(JOURNAL, leader="n2", term=3)

    move = planned("n1", "n2", n2=GuardCopies("n2", journals=(newer,)))

    assert (move.leader, move.led, move.rebuild.kept, move.closing) == ("", False, (newer,), ("n1",))


def test_a_leader_that_does_not_answer_cannot_hand_over() -> None:
    with pytest.raises(PlanRefused, match="n1 leads and its guard does not answer") as refused:
        plan("n2", {"n2": FOLLOWER}, ())

    assert "sparkops gateway rebuild n2 --without n1" in refused.value.next_step


@pytest.mark.parametrize(
    "changes",
    [
        JOURNAL.begun("i1", Mode.ACROSS, target(node="n2").target, automatic=True),
        JOURNAL.noted("i1", "accepted", stopping=True),
    ],
    ids=["swap", "stop"],
)
def test_nothing_moves_while_a_service_changes(changes: Journal) -> None:
    with pytest.raises(Busy) as busy:
        planned(n1=GuardCopies("n1", journals=(changes,)))

    assert busy.value.exit_code == 4


@pytest.mark.parametrize("changes", [{"active": deployed()}, {"active": None, "previous": deployed()}])
def test_a_release_beside_the_old_gateway_moves_first(changes: dict[str, Any]) -> None:
    leader = GuardCopies("n1", journals=(replace(JOURNAL, **changes),))
    if not changes["active"]:
        assert planned(n1=leader).rebuild.journals, "it is stopped, and its next deploy chooses the address"
        return
    with pytest.raises(PlanRefused, match=r"runs beside the gateway on n1 and listens on 127\.0\.0\.1 only") as refused:
        planned(n1=leader)

    assert refused.value.next_step == "Move it first: sparkops node drain n1 --allow-downtime, then retry."


def test_without_a_journal_there_is_no_gateway_to_move() -> None:
    with pytest.raises(PlanRefused, match="no reachable guard keeps a journal") as refused:
        plan("n2", {"n1": GuardCopies("n1"), "n2": GuardCopies("n1")}, ("n1",))

    assert "gateway.node: n2" in refused.value.next_step
