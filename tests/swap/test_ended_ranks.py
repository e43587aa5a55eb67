"""A rank that has ended ends a bake, whatever answers through the gateway: another program may have its port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import WriteJournal
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState, GatewayView, Report
from sparkops.swap.journal import Journal
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Deployment, Mode, Phase, RankSpec, Replica

OLD, NEW = (
    Deployment(name, slot, (Replica(tuple(RankSpec(node, f"{name}-{node}") for node in nodes)),))
    for name, slot, nodes in (("q-1", Slot.BLUE, ("n2",)), ("q-2", Slot.GREEN, ("n3", "n4")))
)
SERVING = Journal("chat", "n1", peers=("n2", "n3", "n4"), revision=5, active=OLD)
HEALTHY, STOPPED, LOADING = EngineState.HEALTHY, EngineState.STOPPED, EngineState.LOADING
TAKEN = "q-2-n3: port 8001 is taken: a program of user ID 1000 listens"


def in_phase(phase: Phase, mode: Mode = Mode.ACROSS, target: Deployment = NEW) -> Journal:
    journal = SERVING.begun("i", mode, target, automatic=True)
    while journal.swap and journal.swap.phase is not phase:
        journal = journal.advanced()
    return journal


def fleet(
    journal: Journal,
    states: Mapping[str, EngineState],
    problem: str = "",
    old: Answer = Answer.YES,
    new: Answer = Answer.YES,
) -> FleetState:
    """Every release answers through the gateway, and the bake has lasted."""
    assert journal.swap
    key = journal.swap.key
    engines = {rank.node: EngineReport(rank.container, states[rank.node], key) for rank in journal.swap.target.ranks}
    if problem:  # nothing is ordered any more, so its report names no start
        engines["n3"] = replace(engines["n3"], key="", problem=problem)
    at = journal.revision
    reports = {
        node: Report(node, "b", 1, at, at, (engine,), armed=engine.container) for node, engine in engines.items()
    }
    reports |= {"n2": Report("n2", "b", 1, at, at, (EngineReport("q-1-n2", HEALTHY),))}
    slots = {Slot.BLUE: "q-1", Slot.GREEN: "q-2"}
    gateway = GatewayView(Slot.GREEN, slots, {Slot.BLUE: old, Slot.GREEN: new}, {Slot.BLUE: 0, Slot.GREEN: 0})
    return FleetState(reports, gateway, frozenset({"n2"}), sampled_s=1e6)


def written(journal: Journal, known: FleetState) -> Journal | None:
    effect = step(journal, known)
    assert effect is None or isinstance(effect, WriteJournal)
    return effect.journal if effect else None


UP = {"n3": HEALTHY, "n4": LOADING}


def test_a_bake_with_every_rank_ends_in_promotion() -> None:
    journal = in_phase(Phase.BAKE)

    after = written(journal, fleet(journal, UP))

    assert after
    assert after.swap
    assert (after.swap.phase, after.swap.reverting) == (Phase.PROMOTE, False)


@pytest.mark.parametrize("node", ["n3", "n4"])
@pytest.mark.parametrize("mode", [Mode.ACROSS, Mode.BESIDE, Mode.IN_PLACE])
def test_a_rank_that_ends_during_the_bake_returns_the_old_release_although_requests_are_answered(
    node: str, mode: Mode
) -> None:
    journal = in_phase(Phase.BAKE, mode)

    after = written(journal, fleet(journal, {**UP, node: STOPPED}))

    assert after
    assert after.swap
    assert (after.swap.reverting, after.swap.why) == (True, f"{node}: q-2-{node} ended")


def test_a_port_that_another_program_has_taken_returns_the_old_release() -> None:
    journal = in_phase(Phase.BAKE)

    after = written(journal, fleet(journal, {**UP, "n3": LOADING}, TAKEN))

    assert after
    assert after.swap
    assert (after.swap.reverting, after.swap.why) == (True, f"n3: {TAKEN}")


def test_a_bake_waits_while_neither_release_may_serve_or_a_rank_is_unknown() -> None:
    journal = in_phase(Phase.BAKE)
    ended = fleet(journal, {**UP, "n3": STOPPED}, old=Answer.NO)
    known = fleet(journal, UP)
    unknown = replace(known, reports={node: report for node, report in known.reports.items() if node != "n4"})

    assert written(journal, ended) is None
    assert written(journal, unknown) is None


def test_a_promotion_waits_until_the_guard_has_restarted_a_lone_engine() -> None:
    alone = Deployment("q-2", Slot.GREEN, (Replica((RankSpec("n3", "q-2-n3"),)),))
    journal = in_phase(Phase.PROMOTE, target=alone)

    assert written(journal, fleet(journal, {"n3": STOPPED})) is None
    after = written(journal, fleet(journal, {"n3": LOADING}))
    assert after
    assert after.swap
    assert after.swap.phase is Phase.DRAIN


def test_a_replica_over_nodes_with_a_rank_that_has_ended_is_promoted_to_be_restarted_as_a_whole() -> None:
    journal = in_phase(Phase.PROMOTE, Mode.IN_PLACE)

    after = written(journal, fleet(journal, {**UP, "n4": STOPPED}))
    assert after
    assert (after.swap, after.active) == (None, NEW)
