"""Every trace in the simulator, and what the comparison finds and does not find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparkops.swap.fleet_state import EngineState
from tests.places import ROOT
from tests.swap.conformance.play import NODES, Play, releases
from tests.swap.conformance.projection import Observed, Recording, Snapshot, differences, names_of
from tests.swap.conformance.traces import MORE, TRACES, Role, Trace
from tests.swap.simulation import laws

ACROSS, WRONG = MORE[0], MORE[-1]


@pytest.mark.parametrize("trace", [*TRACES, *MORE], ids=str)
def test_a_trace_ends_with_the_release_that_it_names(trace: Trace) -> None:
    play = Play.of(trace).run()

    active = play.journal.active
    roles = {item.release: role for role, item in zip(Role, releases(trace), strict=True)}
    assert (roles[active.release] if active else None) is trace.serves
    assert (list(play.world.wrongs), laws.settled(play.world), play.journal.swap) == ([], [], None)
    assert len({name for name in play.observed.tracks if name.endswith("boot record")}) == len(NODES)


def without_short_states(snapshots: list[Snapshot]) -> list[Snapshot]:
    """What a slower observer sees: each state twice, and none in which an engine loads."""
    remaining = [
        snapshot
        for snapshot in snapshots
        if not any(
            engine.state is EngineState.LOADING for report in snapshot.reports.values() for engine in report.engines
        )
    ]
    return [snapshot for snapshot in remaining for _ in range(2)]


@pytest.mark.parametrize("trace", TRACES, ids=str)
def test_how_often_a_run_is_looked_at_makes_no_difference(trace: Trace) -> None:
    play = Play.of(trace).run()
    slower = Recording(play.recording.events, without_short_states(play.recording.snapshots))

    assert differences(play.observed, slower.observed(names_of(play.journals, NODES))) == []


@pytest.mark.parametrize(
    "why",
    [
        "node-2: q-r0 did not start: it ended with code 1\n  likely cause: none",
        "node-2: the smoke suite failed in pass 1 of 1: questions",
        "cancelled",
        "no progress in phase 'prepare'",
    ],
)
def test_a_failure_of_another_kind_or_node_is_a_difference(why: str) -> None:
    play = Play.of(WRONG).run()
    names = names_of(play.journals, {**NODES, "node-2": "n2"})
    events = [{**event, "why": why} if event["kind"] == "end" else event for event in play.recording.events]

    findings = differences(play.observed, Recording(events, play.recording.snapshots).observed(names))

    assert bool(findings) is ("smoke suite" not in why)


@pytest.mark.local
@pytest.mark.parametrize(
    ("trace", "module", "old", "new", "difference"),
    [
        (ACROSS, "model", "Phase.DRAIN, Phase.RETIRE)", "Phase.RETIRE)", "events"),
        (
            ACROSS,
            "journal",
            "ranks = other.ranks if other and not swap.restarts else ()",
            "ranks = ()",
            "n2 old",
        ),
        (ACROSS, "orders", "return None if moving else Armed()", "return None", "n2 boot record"),
        (ACROSS, "phases", "fleet.gateway.answer(swap.proving) if fleet.gateway else Answer.UNKNOWN", "proof", ""),
        (WRONG, "leader", "engine.proven_key == swap.key and engine.proven is Answer.NO", "False", "events"),
    ],
    ids=["no drain", "no stop", "a boot record is kept", "an equivalent rule", "failed checks are ignored"],
)
def test_a_changed_rule_is_a_difference(
    tmp_path: Path, trace: Trace, module: str, old: str, new: str, difference: str
) -> None:
    source = (ROOT / f"sparkops/swap/{module}.py").read_text()
    assert source.count(old) == 1
    file = tmp_path / f"{module}.py"
    file.write_text(source.replace(old, new))

    run = (sys.executable, "-m", "tests.swap.conformance.changed", f"sparkops.swap.{module}", str(file), trace.name)
    ran = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    printed = json.loads(ran.stdout)
    tracks = {name: tuple(values) for name, values in printed["tracks"].items()}
    changed = Observed(tuple(printed["events"]), tracks)

    compared = [line.partition(":")[0] for line in differences(Play.of(trace).run().observed, changed)]
    assert difference in compared if difference else compared == []
