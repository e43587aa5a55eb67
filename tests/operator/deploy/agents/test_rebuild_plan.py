"""What makes a node the leader after its predecessor is lost, and what stands against it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.errors import PlanRefused, UsageError
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.deploy.agents.rebuild_plan import SILENT_S, GuardCopies, plan, read
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment
from tests.operator.deploy.states import deployed

ACTIVE = deployed(node="n2")
JOURNAL = Journal("chat", "n1", ("n2", "n3"), term=2, revision=9, active=ACTIVE)
LOST, NONE = frozenset({"n1"}), frozenset[str]()


def follower(*copies: Journal, **changes: Any) -> GuardCopies:
    return GuardCopies(**{"leader": "n1", "copies": copies, "heard_ago_s": 60.0, **changes})


def on_n1() -> Deployment:
    return deployed(node="n1")


def test_the_newest_copy_becomes_the_journal_of_the_next_term() -> None:
    copies = {"n2": follower(replace(JOURNAL, revision=8)), "n3": follower(JOURNAL)}

    swap_plan = plan("n2", copies, LOST)

    (journal,) = swap_plan.journals
    assert (journal.leader, journal.term, journal.revision) == ("n2", 3, 10)
    assert (journal.active, journal.without, set(journal.peers)) == (ACTIVE, LOST, {"n1", "n3"})
    (port,) = {service.port for service in swap_plan.services}
    assert swap_plan.services == (Service("chat", port),)
    assert port > 0
    assert str(swap_plan).splitlines() == [
        "gateway and leader on n2, without n1",
        f"  chat: {ACTIVE.release} serves; journal term 3, revision 10",
    ]


def test_a_rebuild_on_the_leaders_own_node_knows_which_guards_follow_it() -> None:
    copies = {"n1": GuardCopies("n1", journals=(JOURNAL,)), "n2": follower(JOURNAL), "n3": follower(leader="n0")}

    renewal = plan("n1", copies, NONE)

    assert (len(renewal.journals), renewal.kept) == (0, (JOURNAL,))
    assert renewal.following == {"n1", "n2"}


def test_what_ran_on_a_lost_node_is_given_up_and_named() -> None:
    swap_plan = plan("n2", {"n2": follower(replace(JOURNAL, active=on_n1())), "n3": follower()}, LOST)

    (journal,) = swap_plan.journals
    (rank,) = on_n1().ranks
    assert (journal.active, journal.stopped) == (None, (rank,))
    assert f"    given up: {rank.container}" in str(swap_plan)


def test_a_forgotten_service_moves_along_and_is_not_listed() -> None:
    forgotten = replace(JOURNAL, service="old", active=None, forgotten=True)

    moved = plan("n2", {"n2": follower(JOURNAL, forgotten), "n3": follower(JOURNAL)}, LOST)

    assert [journal.service for journal in moved.journals] == ["chat", "old"]
    assert "old" not in str(moved)


def test_a_leader_that_answers_is_not_lost() -> None:
    leader = GuardCopies("n1", journals=(JOURNAL,))

    with pytest.raises(PlanRefused, match="n1: the leader of this fleet answers") as refused:
        plan("n2", {"n1": leader, "n2": follower(JOURNAL), "n3": follower()}, frozenset())

    assert refused.value.exit_code == 5


@pytest.mark.parametrize(("ago_s", "lost"), [(None, True), (SILENT_S, True), (SILENT_S - 1, False)])
def test_a_leader_that_another_guard_hears_is_not_lost(ago_s: float | None, lost: bool) -> None:
    """This machine may have lost its own way to it."""
    copies = {"n2": follower(JOURNAL), "n3": follower(JOURNAL, heard_ago_s=ago_s)}
    if lost:
        assert plan("n2", copies, LOST).journals
        return
    with pytest.raises(PlanRefused, match="n3: the leader n1 sent a message 9 s ago: it is not lost"):
        plan("n2", copies, LOST)


def test_a_guard_that_may_know_more_is_asked_or_given_up() -> None:
    copies = {"n2": follower(JOURNAL)}

    with pytest.raises(PlanRefused, match="do not answer: n1, n3") as refused:
        plan("n2", copies, frozenset())
    assert refused.value.next_step.endswith("sparkops gateway rebuild n2 --without n1 --without n3")
    with pytest.raises(PlanRefused, match="do not answer: n3"):
        plan("n2", copies, LOST)

    assert plan("n2", copies, frozenset({"n1", "n3"})).journals
    before = replace(JOURNAL, without=frozenset({"n3"}))
    assert plan("n2", {"n2": follower(before)}, LOST).journals, "n3 was given up before"


def test_a_node_that_answers_is_not_given_up() -> None:
    with pytest.raises(UsageError, match="--without n3: its guard answers"):
        plan("n2", {"n2": follower(JOURNAL), "n3": follower()}, frozenset({"n1", "n3"}))


def test_without_a_journal_there_is_nothing_to_rebuild() -> None:
    with pytest.raises(PlanRefused, match="no reachable guard keeps a journal"):
        plan("n2", {"n2": follower()}, LOST)


def test_a_rebuild_that_was_interrupted_is_continued_and_takes_nothing_twice() -> None:
    first = plan("n2", {"n2": follower(JOURNAL), "n3": follower()}, LOST)
    taken = GuardCopies("n2", journals=first.journals, copies=(JOURNAL,))

    second = plan("n2", {"n2": taken, "n3": follower(JOURNAL)}, LOST)

    assert (second.journals, second.kept, second.services) == ((), first.journals, first.services)


def test_an_old_leader_that_returns_after_a_rebuild_stands_against_nothing() -> None:
    first = plan("n2", {"n2": follower(JOURNAL), "n3": follower()}, LOST)
    returned = GuardCopies("n1", journals=(JOURNAL,))

    second = plan("n2", {"n1": returned, "n2": GuardCopies("n2", journals=first.journals)}, frozenset({"n3"}))

    assert second.kept == first.journals


def test_a_leader_that_lost_its_disk_is_rebuilt_in_place() -> None:
    swap_plan = plan("n1", {"n1": GuardCopies(""), "n2": follower(JOURNAL), "n3": follower(JOURNAL)}, frozenset())

    (journal,) = swap_plan.journals
    assert (journal.leader, journal.term, journal.active) == ("n1", 3, ACTIVE)


def test_a_leader_that_began_anew_without_its_journal_gets_the_newest_copy() -> None:
    begun = replace(JOURNAL, revision=2, active=None)

    swap_plan = plan(
        "n1", {"n1": GuardCopies("n1", journals=(begun,)), "n2": follower(JOURNAL), "n3": follower()}, NONE
    )

    (journal,) = swap_plan.journals
    assert (journal.leader, journal.term, journal.revision, journal.active) == ("n1", 3, 10, ACTIVE)
    assert swap_plan.kept == ()


def test_a_rebuild_is_later_than_one_whose_leader_was_lost_before_any_guard_had_its_journal() -> None:
    (journal,) = plan("n3", {"n3": follower(JOURNAL, leader="n2", term=3)}, frozenset({"n1", "n2"})).journals

    assert journal.term == 4


def test_a_reply_is_read_as_it_was_written() -> None:
    written = {
        "leader": "n1",
        "journals": [],
        "copies": [wire.plain(Journal, JOURNAL)],
        "term": 3,
        "heard_ago_s": 3.5,
        "problems": ["both copies are damaged"],
    }

    assert read(written) == follower(JOURNAL, term=3, heard_ago_s=3.5, problems=("both copies are damaged",))
