"""The dry run: every effect of the machine with the command that its guard runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.errors import Busy, PlanRefused
from sparkops.names import Slot
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preview import as_json, lines, preview
from sparkops.serving import engine_spec
from sparkops.serving.service_state import ServiceState
from sparkops.swap.fleet_state import EngineReport, EngineState, FleetState
from sparkops.swap.intents import Deploy, Refused, accept
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode, Phase
from tests.operator.deploy.states import deployed, serving, swapping, target
from tests.operator.deploy.swaps import NEW, OLD

IN_PLACE = DeployOptions(mode=Mode.IN_PLACE, allow_downtime=True)


def test_the_first_deploy_of_a_fleet_is_shown_before_any_guard_runs() -> None:
    intent = Deploy("i1", 0, deployed(NEW), Mode.FIRST)

    effect_plan = preview(ServiceState(Journal("chat", "n1")), intent)

    assert effect_plan is not None
    (rank,) = intent.target.ranks
    create = engine_spec.of(rank).create("n1")
    assert "--label=sparkops.release=" in str(create)
    shown, full = list(lines(effect_plan, "chat")), list(lines(effect_plan, "chat", verbose=True))
    started = ["start", f"  n1: docker start {rank.container}"]
    assert shown[:4] == ["prepare", f"  n1: docker create --name={rank.container}", *started]
    assert full[:4] == ["prepare", f"  n1: {create}", *started]
    assert shown[4:6] == ["verify", f"  n1: verify {rank.container}"]
    point, *rest = shown[6:]
    assert point.startswith("  n1: docker exec ")
    assert f"point chat blue {NEW.id}" in point
    assert [line.partition(" ")[0] for line in rest if not line.startswith(" ")] == ["switch", "promote"]
    assert shown[-1] == f"  n1: after a boot, start {rank.container}"


def test_in_place_the_old_release_stops_before_the_new_one_starts() -> None:
    effect_plan = preview(serving(), target(options=IN_PLACE))

    assert effect_plan is not None
    old, new = next(deployed().ranks).container, next(target().target.ranks).container
    shown = list(lines(effect_plan, "chat"))
    stop, start = shown.index(f"  n1: docker stop --time=60 {old}"), shown.index(f"  n1: docker start {new}")
    assert shown[stop - 1] == "stop old release"
    assert stop < start
    assert any("switch chat down" in line or "down chat" in line for line in shown[:stop])


def test_the_json_names_phase_node_effect_and_command() -> None:
    effect_plan = preview(serving(), target())

    assert effect_plan is not None
    first, *_, last = as_json(effect_plan, "chat")
    assert (first["phase"], first["node"]) == ("prepare", "n1")
    assert str(first["command"]).startswith("docker create --label=sparkops.spec=")
    [old] = deployed().ranks
    assert (last["phase"], last["effect"]) == ("afterwards", f"docker stop {old.container}")
    assert last["command"] == str(engine_spec.stop(old)) == f"docker stop --time=60 {old.container}"


def test_what_the_leader_would_refuse_is_refused() -> None:
    with pytest.raises(Busy, match="plan again"):
        preview(serving(), replace(target(), revision=6))
    with pytest.raises(Busy, match="on hold: fair"):
        preview(serving(hold="fair"), target())
    with pytest.raises(PlanRefused, match="slot blue has the traffic"):
        preview(serving(), replace(target(), target=replace(target().target, slot=Slot.BLUE)))
    loading = swapping(Phase.LOAD)
    with pytest.raises(Busy, match=f"a swap to {NEW.id} is in phase 'wait until ready'"):
        preview(loading, replace(target(), id="i2", revision=loading.journal.revision))


def test_a_refusal_for_a_silent_guard_names_how_to_start_it_and_how_to_do_without() -> None:
    state = serving()
    alone = replace(state, reports={"n1": state.reports["n1"]})

    with pytest.raises(PlanRefused, match="no other guard confirms that n1 leads") as refused:
        preview(alone, target())
    assert refused.value.next_step.splitlines() == [
        "docker start sparkops-guard, on n2; sparkops doctor",
        "If they are lost: sparkops deploy RECIPE --without n2",
    ]


def test_what_serves_already_has_no_effects() -> None:
    assert preview(serving(), Deploy("i1", 7, deployed(OLD), Mode.BESIDE)) is None


def test_a_preview_changes_neither_the_state_nor_the_intent() -> None:
    state, intent = serving(), target()

    preview(state, intent)

    assert (state, intent) == (serving(), target())


def test_a_deploy_waits_for_work_on_its_nodes_and_a_warm_release_does_not() -> None:
    state = serving()
    leased = {node: replace(report, lease="build of image x by ann@laptop") for node, report in state.reports.items()}
    fleet = FleetState(leased, state.gateway, frozenset(leased))

    refused = accept(state.journal, target(node="n2"), fleet)

    assert refused == Refused("n2: no engine loads during the build of image x by ann@laptop", busy=True)
    (rank,) = target(node="n2").target.ranks
    warm = replace(leased["n2"], engines=(EngineReport(rank.container, EngineState.HEALTHY),))
    assert isinstance(accept(state.journal, target(node="n2"), replace(fleet, reports={**leased, "n2": warm})), Journal)
