"""What a report counts for: its guard's newest orders, the engine, the boot record, the copy of the journal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkops.swap.effects import WriteJournal
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, Report
from sparkops.swap.journal import Journal, Swap, present
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Phase
from sparkops.swap.phases import RULES, is_gone, proven
from sparkops.swap.rebuild import rebuilt
from tests.swap.simulation.messages import reporting
from tests.swap.simulation.scenarios import gateway_view
from tests.swap.simulation.story import Story
from tests.swap.simulation.transitions import lead
from tests.swap.simulation.world import Gateway, Leader


def begun(phase: Phase) -> tuple[Journal, Swap]:
    """A swap to n3 in a phase."""
    journal = Story.of("across").until(phase).journal
    return journal, present(journal.swap)


def reported(journal: Journal, copies: int = 0, **changes: Any) -> FleetState:
    """The report of n3 under the newest orders, with changes. `copies`: how many revisions its copy is behind."""
    report = Report("n3", "boot", journal.term, journal.revision - copies, journal.revision)
    gateway = gateway_view(b=Answer.YES)
    return FleetState(reports={"n3": replace(report, **changes)}, gateway=gateway)


def test_a_container_is_gone_once_it_neither_runs_nor_would_start_under_the_newest_orders() -> None:
    journal, swap = begun(Phase.LOAD)
    rank = next(swap.target.ranks)
    runs = (EngineReport("b-r0", EngineState.HEALTHY),)

    assert is_gone(journal, reported(journal), rank)
    assert not is_gone(journal, FleetState(), rank)
    assert not is_gone(journal, reported(journal, adopted=journal.revision - 1), rank)
    assert not is_gone(journal, reported(journal, engines=runs), rank)
    assert not is_gone(journal, reported(journal, armed="b-r0"), rank)


def test_what_still_ends_is_not_taken_for_the_new_start() -> None:
    journal, swap = begun(Phase.PREPARE)
    ending = replace(journal, stopped=tuple(swap.target.ranks))
    runs = reported(ending, engines=(EngineReport("b-r0", EngineState.HEALTHY),))

    assert RULES[Phase.PREPARE](ending, swap, runs) is Answer.NO
    assert RULES[Phase.PREPARE](journal, swap, runs) is Answer.YES


def test_a_promotion_waits_for_the_engine_the_boot_record_and_a_copy() -> None:
    journal, swap = begun(Phase.PROMOTE)
    runs: dict[str, Any] = {"engines": (EngineReport("b-r0", EngineState.HEALTHY),)}
    views = (
        reported(journal, armed="b-r0", **runs),
        reported(journal, armed="b-r0", adopted=journal.revision - 1, **runs),
        reported(journal, armed="", **runs),
        reported(journal, armed="b-r0", copies=1, **runs),
        reported(journal, armed="b-r0"),
    )

    answers = [RULES[Phase.PROMOTE](journal, swap, view) for view in views]

    assert answers == [Answer.YES, *[Answer.NO] * 4]


def test_a_verdict_counts_for_an_engine_that_runs_under_the_newest_orders() -> None:
    journal, swap = begun(Phase.VERIFY)
    passed = EngineReport("b-r0", EngineState.HEALTHY, swap.key, Answer.YES, swap.key)
    ended, unproven = replace(passed, state=EngineState.STOPPED), replace(passed, proven=Answer.UNKNOWN)

    assert proven(journal, swap, reported(journal, engines=(passed,))) is Answer.YES
    assert proven(journal, swap, reported(journal, engines=(passed,), adopted=-1)) is Answer.UNKNOWN
    assert proven(journal, swap, reported(journal, engines=(ended,))) is Answer.UNKNOWN
    assert RULES[Phase.VERIFY](journal, swap, reported(journal, engines=(unproven,))) is Answer.LATER


def test_a_report_under_an_earlier_leader_counts_for_nothing_however_high_its_revisions() -> None:
    """A guard that the operator did not reach for the rebuild may be ahead of the copy that the new leader has."""
    journal, swap = begun(Phase.PROMOTE)
    rank = next(swap.target.ranks)
    ahead = {"copies": -9, "term": journal.term - 1, "adopted": journal.revision + 9}
    fleet = reported(journal, armed="b-r0", **ahead)

    assert fleet.engine(journal, rank) is None
    assert not fleet.replicated(journal)
    assert not is_gone(journal, reported(journal, **ahead), rank)
    assert RULES[Phase.PROMOTE](journal, swap, replace(fleet, reports={**fleet.reports, **copy(journal)})) is Answer.NO


def copy(journal: Journal) -> dict[str, Report]:
    """The report of a guard that has nothing but a copy of the journal."""
    return {"n2": Report("n2", "boot", journal.term, journal.revision, journal.revision)}


def test_a_new_leader_decides_nothing_from_what_runs_under_the_orders_of_the_old_one() -> None:
    story = Story.of("across").until(Phase.LOAD)
    early = present(story.world.machine("n2").record.copy)
    story.until(Phase.BAKE).fault("loss of n1")
    new = Leader(rebuilt([early], "n2", frozenset({"n1"})))
    story.world = replace(story.world, leaders=(*story.world.leaders, new), gateway=Gateway("n2"))

    _, story.world = next(reporting(story.world))
    assert story.world.fleet(story.world.leader).reports["n3"].adopted > new.journal.revision

    while effect := step(new.journal, story.world.fleet(story.world.leader)):
        assert not isinstance(effect, WriteJournal), effect
        story.world = lead(story.world, story.world.leader, effect)

    assert story.settle().journal.leader == "n2"
